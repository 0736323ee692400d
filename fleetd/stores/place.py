"""Where a shared ledger is; a module of its own, so that reading a configuration loads no database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import parse_qsl, unquote, urlsplit

_SCHEMES = ("postgresql", "postgres")
_SAFE_MODES = ("require", "verify-ca", "verify-full")


@dataclass(frozen=True, slots=True, kw_only=True)
class PgPlace:
    """A PostgreSQL database by its URL, with everything that libpq understands, and without a password.

    Beyond this machine the connection is encrypted, and unless `sslmode` says otherwise the server has to prove its
    name: what is written there takes hosts away from their users.
    """

    url: str = field(repr=False)
    """`postgresql://USER@HOST[:PORT][,HOST…]/DATABASE[?KEY=VALUE&…]`."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, or would say a password. Raises ValueError, which never repeats the URL."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            raise ValueError("is no URL; write postgresql://USER@HOST/DATABASE") from None
        if parts.scheme not in _SCHEMES:
            raise ValueError("is no URL of PostgreSQL; write postgresql://USER@HOST/DATABASE")
        if ":" in parts.netloc.rpartition("@")[0] or "password" in self._options:
            raise ValueError(
                "has a password in it, which everybody who reads the file would know: put it into a file of mode 600 "
                "as `HOST:PORT:DATABASE:USER:PASSWORD`, and name that by `?passfile=FILE` or PGPASSFILE"
            )
        if not parts.path.strip("/") and "dbname" not in self._options:
            raise ValueError("names no database; write postgresql://USER@HOST/DATABASE")
        mode = self._options.get("sslmode")
        if mode is not None and mode not in _SAFE_MODES and self._beyond:
            raise ValueError(f"sslmode={mode:.20} may send the ledger in the clear; use {' or '.join(_SAFE_MODES)}")

    @property
    def where(self) -> str:
        """Its hosts and name, for messages: no user, no option."""
        parts = urlsplit(self.url)
        hosts = parts.netloc.rpartition("@")[2] or self._options.get("host", "")
        return f"postgresql://{unquote(hosts)}/{parts.path.strip('/') or self._options.get('dbname', '')}"

    @property
    def sslmode(self) -> str | None:
        """What to set when the URL does not; None: nothing."""
        return "verify-full" if self._beyond and "sslmode" not in self._options else None

    def elsewhere(self, defaults: Mapping[str, str]) -> str:
        """Where libpq would go that the URL does not say, if that may be another machine; "": nowhere.

        Args:
            defaults: libpq's, by keyword, as its environment (PGHOST, PGHOSTADDR, PGSERVICE) makes them.
        """
        if self._beyond or "hostaddr" in self._options:
            return ""  # there the server has to prove its name; or it goes here
        led = [defaults.get("hostaddr", "")]  # libpq takes an address before the host that the URL names
        if not self._named:
            if defaults.get("service"):
                return defaults["service"]  # which may say anything
            led.append(defaults.get("host", ""))
        return ",".join(host for named in led for host in named.split(",") if host and not _is_here(host))

    @property
    def _options(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))

    @property
    def _beyond(self) -> bool:
        """Whether it may be on another machine."""
        return "service" in self._options or not all(_is_here(host) for host in self._named)

    @property
    def _named(self) -> list[str]:
        """What it names to go to: hosts, addresses, a service."""
        netloc = urlsplit(self.url).netloc.rpartition("@")[2]
        named = [*netloc.split(","), *(self._options.get(key, "") for key in ("host", "hostaddr", "service"))]
        return [unquote(host) for host in named if host]


def _is_here(host: str) -> bool:
    """Whether `HOST`, `HOST:PORT`, `[IPV6]:PORT` or the path of a socket is of this machine."""
    bare = host.strip("[]")
    return host.startswith(("/", "@")) or _is_loopback(bare) or _is_loopback(host.rpartition(":")[0].strip("[]"))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
