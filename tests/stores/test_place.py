"""Where a shared ledger is: no password is written down, and beyond this machine nothing goes in the clear."""

import pytest

from fleetd.ports import StoreError
from fleetd.stores.place import PgPlace
from fleetd.stores.postgres import connect


@pytest.mark.parametrize(
    ("url", "where", "mode"),
    [
        ("postgresql://fleetd@db.example:5432/fleet", "postgresql://db.example:5432/fleet", "verify-full"),
        ("postgres://a,b:1/fleet?target_session_attrs=primary", "postgresql://a,b:1/fleet", "verify-full"),
        ("postgresql://fleetd@db/fleet?sslmode=require&passfile=/etc/x", "postgresql://db/fleet", None),
        ("postgresql://fleetd@127.0.0.1/fleet", "postgresql://127.0.0.1/fleet", None),
        ("postgresql://[::1]:5433/fleet", "postgresql://[::1]:5433/fleet", None),
        ("postgresql://[2001:db8::1]:5433/fleet", "postgresql://[2001:db8::1]:5433/fleet", "verify-full"),
        ("postgresql://localhost,10.0.0.1/fleet", "postgresql://localhost,10.0.0.1/fleet", "verify-full"),
        ("postgresql:///fleet?host=/run/postgresql&sslmode=disable", "postgresql:///run/postgresql/fleet", None),
        ("postgresql:///fleet?host=db.example", "postgresql://db.example/fleet", "verify-full"),
        ("postgresql://%2Frun%2Fpostgresql/fleet", "postgresql:///run/postgresql/fleet", None),
        ("postgresql://localhost/fleet?hostaddr=10.0.0.1", "postgresql://localhost/fleet", "verify-full"),
        ("postgresql:///?dbname=fleet&service=x", "postgresql:///fleet", "verify-full"),
    ],
)
def test_a_url_is_named_without_its_user_and_is_safe_beyond_this_machine(
    url: str, where: str, mode: str | None
) -> None:
    place = PgPlace(url=url)
    assert (place.where, place.sslmode) == (where, mode)
    assert url not in repr(place)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://fleetd:s3cret@db/fleet", "passfile"),
        ("postgresql://fleetd@db/fleet?password=s3cret", "passfile"),
        ("postgresql://fleetd:@db/fleet", "passfile"),
        ("postgresql://fleetd@db/fleet?sslmode=prefer", "in the clear"),
        ("postgresql:///fleet?host=db&sslmode=disable", "in the clear"),
        ("postgresql://fleetd@db", "names no database"),
        ("mysql://s3cret@db/fleet", "no URL of PostgreSQL"),
        ("fleet.db", "no URL of PostgreSQL"),
        ("postgresql://[s3cret/fleet", "is no URL"),
    ],
)
def test_what_cannot_be_is_refused_and_not_repeated(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        PgPlace(url=url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "defaults", "far"),
    [
        ("postgresql:///fleet", {}, ""),
        ("postgresql:///fleet", {"host": "/run/postgresql"}, ""),
        ("postgresql:///fleet", {"host": "localhost"}, ""),
        ("postgresql:///fleet", {"host": "localhost,db.example"}, "db.example"),
        ("postgresql:///fleet?sslmode=disable", {"hostaddr": "10.0.0.1"}, "10.0.0.1"),
        ("postgresql:///fleet", {"service": "x"}, "x"),
        ("postgresql://localhost/fleet", {"hostaddr": "10.0.0.1"}, "10.0.0.1"),
        ("postgresql://localhost/fleet", {"hostaddr": "127.0.0.1", "host": "elsewhere"}, ""),
        ("postgresql://localhost/fleet?hostaddr=127.0.0.1", {"hostaddr": "10.0.0.1"}, ""),
        ("postgresql://db/fleet", {"host": "elsewhere", "hostaddr": "10.0.0.1"}, ""),
        ("postgresql:///fleet?host=/run/postgresql", {"host": "elsewhere"}, ""),
    ],
)
def test_where_the_environment_leads_and_the_url_does_not(url: str, defaults: dict[str, str], far: str) -> None:
    assert PgPlace(url=url).elsewhere(defaults) == far


@pytest.mark.parametrize("name", ["PGHOST", "PGHOSTADDR", "PGSERVICE"])
def test_no_connection_goes_where_only_the_environment_leads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "192.0.2.1")
    with pytest.raises(StoreError, match=r"leads to 192\.0\.2\.1; write that into the URL, or unset it"):
        connect(PgPlace(url="postgresql:///fleet?connect_timeout=2"))


def test_an_address_from_the_environment_does_not_replace_the_host_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    with pytest.raises(StoreError, match=r"postgresql://localhost/fleet: .* leads to 192\.0\.2\.1"):
        connect(PgPlace(url="postgresql://localhost/fleet?connect_timeout=2"))
