"""Model ↔ protobuf for what an agent says first: its host, where that stands, its GPUs. Raises as `codec` does."""

from fleetd.model.host import Gpu, Hello, Place
from fleetd.model.ids import BootId, GpuId, HostName, SpoolId
from fleetd.pb.v1 import agent_pb2, common_pb2
from fleetd.uplink.wire import MAX_CAPABILITIES, MAX_GPUS, finite, items, label, name, unsigned


def _optional(value: str | None, what: str) -> str | None:
    return None if value is None else name(value, what)


def gpu_to_pb(gpu: Gpu) -> common_pb2.Gpu:
    """Encode one GPU of an inventory; raises CodecError."""
    return common_pb2.Gpu(
        gpu=name(gpu.gpu, "inventory gpu"),
        index=unsigned(gpu.index, "inventory index", bits=32),
        vendor=name(gpu.vendor, "inventory vendor"),
        sku=label(gpu.sku, "inventory sku"),
        pci_address=_optional(gpu.pci_address, "inventory pci_address"),
        vbios=_optional(gpu.vbios, "inventory vbios"),
        firmware=_optional(gpu.firmware, "inventory firmware"),
        driver_version=_optional(gpu.driver_version, "inventory driver_version"),
    )


def gpu_from_pb(pb: common_pb2.Gpu) -> Gpu:
    """Decode one GPU of an inventory; raises CodecError."""
    return Gpu(
        gpu=GpuId(name(pb.gpu, "inventory gpu")),
        index=pb.index,
        vendor=name(pb.vendor, "inventory vendor"),
        sku=label(pb.sku, "inventory sku"),
        pci_address=name(pb.pci_address, "inventory pci_address") if pb.HasField("pci_address") else None,
        vbios=name(pb.vbios, "inventory vbios") if pb.HasField("vbios") else None,
        firmware=name(pb.firmware, "inventory firmware") if pb.HasField("firmware") else None,
        driver_version=name(pb.driver_version, "inventory driver_version") if pb.HasField("driver_version") else None,
    )


def place_to_pb(place: Place) -> common_pb2.Place:
    """Encode where a host stands; raises CodecError."""
    return common_pb2.Place(
        pool=_optional(place.pool, "place pool"),
        rack=_optional(place.rack, "place rack"),
        nvlink_domain=_optional(place.nvlink_domain, "place nvlink_domain"),
        power_domain=_optional(place.power_domain, "place power_domain"),
        job=_optional(place.job, "place job"),
    )


def place_from_pb(pb: common_pb2.Place) -> Place:
    """Decode where a host stands; raises CodecError."""
    return Place(
        pool=name(pb.pool, "place pool") if pb.HasField("pool") else None,
        rack=name(pb.rack, "place rack") if pb.HasField("rack") else None,
        nvlink_domain=name(pb.nvlink_domain, "place nvlink_domain") if pb.HasField("nvlink_domain") else None,
        power_domain=name(pb.power_domain, "place power_domain") if pb.HasField("power_domain") else None,
        job=name(pb.job, "place job") if pb.HasField("job") else None,
    )


def _capability(word: str) -> str:
    return name(word, "hello capability")


def hello_to_pb(hello: Hello, spool: SpoolId) -> agent_pb2.Hello:
    """Encode what an agent says first; raises CodecError."""
    return agent_pb2.Hello(
        host=name(hello.host, "hello host"),
        boot_id=name(hello.boot_id, "hello boot_id"),
        agent_version=name(hello.agent_version, "hello agent_version"),
        capabilities=items(
            hello.capabilities,
            _capability,
            "hello capabilities",
            limit=MAX_CAPABILITIES,
        ),
        inventory=items(hello.inventory, gpu_to_pb, "hello inventory", limit=MAX_GPUS),
        spool_id=name(spool, "hello spool_id"),
        place=place_to_pb(hello.place),
        at_s=None if hello.at_s is None else finite(hello.at_s, "hello at_s"),
        driver_version=_optional(hello.driver_version, "hello driver_version"),
    )


def hello_from_pb(pb: agent_pb2.Hello) -> tuple[Hello, SpoolId]:
    """Decode what an agent says first, and the identity of its spool; raises CodecError."""
    hello = Hello(
        host=HostName(name(pb.host, "hello host")),
        boot_id=BootId(name(pb.boot_id, "hello boot_id")),
        agent_version=name(pb.agent_version, "hello agent_version"),
        capabilities=items(pb.capabilities, _capability, "hello capabilities", limit=MAX_CAPABILITIES),
        inventory=items(pb.inventory, gpu_from_pb, "hello inventory", limit=MAX_GPUS),
        place=place_from_pb(pb.place),
        at_s=finite(pb.at_s, "hello at_s") if pb.HasField("at_s") else None,
        driver_version=name(pb.driver_version, "hello driver_version") if pb.HasField("driver_version") else None,
    )
    return hello, SpoolId(name(pb.spool_id, "hello spool_id"))
