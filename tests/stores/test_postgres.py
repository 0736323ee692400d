"""A ledger that controllers share: one writes at a time, what it wrote is whole, and a cut is never taken for a no."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
import structlog
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from click.testing import CliRunner, Result

from fleetd.cli import main
from fleetd.compose import keeping
from fleetd.compose.shared import prune
from fleetd.core.chain import unbroken
from fleetd.model.event import JobEnded
from fleetd.model.ids import HostName, SpoolId
from fleetd.model.journal import SpoolProgress
from fleetd.ports import NotJudge, OtherSchema, StoreError
from fleetd.stores.place import PgPlace
from fleetd.stores.postgres import PgStore, connect, see_version
from fleetd.stores.schema import metadata
from fleetd.stores.seat import PgSeat
from fleetd.system import RealClock
from tests.e2e.cable import Cable
from tests.postgres import Cluster
from tests.stores.ledgers import DAY, Ledgerer, burnin


@pytest.fixture(name="place")
def _place(postgres: Cluster) -> PgPlace:
    return postgres.place()


@pytest.fixture(name="store")
def _store(place: PgPlace) -> Iterator[PgStore]:
    with closing(PgStore(place, holder="first")) as store:
        yield store


def history() -> Ledgerer:
    made = Ledgerer()
    made.join(0.0, ["h1", "h2"])
    made.at(100.0, burnin("h1", "f1", 99.0))
    return made


def taken(seat: PgSeat) -> PgStore:
    """The ledger, as soon as the server has seen off the session that had the seat."""
    clock = RealClock()
    deadline_s = clock.elapsed_s() + 30.0
    while (store := seat.take()) is None:
        assert clock.elapsed_s() < deadline_s
    return store


def schema_of(place: PgPlace) -> str:
    found = re.search(r"search_path%3D(\w+)", place.url)
    assert found is not None
    return found[1]


# ── one writes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_whoever_lost_the_term_writes_nothing_more(place: PgPlace, store: PgStore) -> None:
    made = history()
    store.commit(made.entries)
    claim = store.claim(made.entries[-1].orders[0].id)
    assert claim is not None
    with closing(PgStore(place, holder="second")) as successor:
        before = successor.load()
        for write in (
            lambda: store.commit(made.entries),
            lambda: store.finish_order(before.open_orders[0].id, "done"),
            lambda: store.claim(before.open_orders[0].id),
            lambda: claim.finish("done"),
        ):
            with pytest.raises(NotJudge, match="another controller is the judge by now: second"):
                write()
        assert successor.load() == before
        assert successor.claim(before.open_orders[0].id) is not None


def test_a_reader_begins_no_term_and_writes_nothing(place: PgPlace, store: PgStore) -> None:
    with closing(PgStore(place, read_only=True)) as reader, pytest.raises(NotJudge):
        reader.commit(history().entries)
    store.commit(history().entries)


def test_an_order_is_worked_on_by_one_at_a_time(place: PgPlace, store: PgStore) -> None:
    made = history()
    store.commit(made.entries)
    order = made.entries[-1].orders[0].id
    working = store.claim(order)
    assert working is not None
    with closing(PgStore(place)) as successor:
        assert successor.claim(order) is None
        working.let_go()
        claim = successor.claim(order)
        assert claim is not None
        claim.finish("done by the second")
        assert order not in {o.id for o in successor.load().open_orders}


def test_orders_are_finished_while_entries_are_written(store: PgStore) -> None:
    made = history()
    store.commit(made.entries)
    claim = store.claim(made.entries[-1].orders[0].id)
    assert claim is not None
    with store._guarded(write=True) as writing:
        writing.execute(sa.text("SELECT count(*) FROM journal"))
        claim.finish("done")  # waits for nobody: else each order would wait for the disk twice
    assert made.entries[-1].orders[0].id not in {order.id for order in store.load().open_orders}


def test_a_store_that_is_closed_claims_nothing_more(place: PgPlace, store: PgStore) -> None:
    """A claim is asked for on a thread: when it is there, its controller may have ended already."""
    store.commit(history().entries)
    (order, *_) = store.load().open_orders
    store.close()
    with pytest.raises(NotJudge, match="closed"):
        store.claim(order.id)
    with closing(PgStore(place)) as successor:
        claim = successor.claim(order.id)
        assert claim is not None
        claim.let_go()


def test_claims_end_with_the_store_that_has_them(place: PgPlace, store: PgStore) -> None:
    made = history()
    store.commit(made.entries)
    order = made.entries[-1].orders[0].id
    assert store.claim(order) is not None
    store.close()
    with closing(PgStore(place)) as successor:
        assert successor.claim(order) is not None


def test_the_seat_is_one_controllers_and_is_free_when_it_leaves(place: PgPlace) -> None:
    first, second = PgSeat(place, holder="c1"), PgSeat(place, holder="c2")
    store = first.take()
    assert store is not None
    first.held()
    assert second.take() is None
    assert second.rival == "c1"
    first.leave()
    with pytest.raises(NotJudge):
        first.held()
    successor = taken(second)
    assert successor.term == store.term + 1
    store.close()
    successor.close()
    second.leave()


def test_ledgers_in_two_schemas_have_two_judges(postgres: Cluster) -> None:
    seats = [PgSeat(postgres.place(), holder=f"c{n}") for n in range(2)]
    stores = [seat.take() for seat in seats]
    for seat, store in zip(seats, stores, strict=True):
        assert store is not None
        store.close()
        seat.leave()


def test_a_judge_that_hangs_in_the_middle_of_writing_is_not_waited_for(place: PgPlace, store: PgStore) -> None:
    """Also where the server's time-outs would not count: stopped between the statements of a batch."""
    store.commit(history().entries)
    with closing(connect(place)) as hung:
        hung.execute("SELECT number FROM term FOR UPDATE")
        with closing(PgStore(place)) as successor:
            successor.commit(history().entries[:1])
            with pytest.raises(psycopg.errors.AdminShutdown):
                hung.execute("SELECT 1")


def test_a_judge_whose_session_ends_knows_it_and_another_takes_its_place(postgres: Cluster, place: PgPlace) -> None:
    first, second = PgSeat(place, holder="c1"), PgSeat(place, holder="c2")
    store = first.take()
    assert store is not None
    with closing(postgres.connect()) as root:
        locks = "SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE locktype = 'advisory' AND classid = %s"
        ours = " AND objid::bigint = (hashtext(%s)::bigint & 4294967295)"
        assert root.execute((locks + ours).encode(), (0x666C7464, schema_of(place))).fetchall() == [(True,)]
    with pytest.raises(StoreError, match="terminat"):
        first.held()
    successor = taken(second)
    with pytest.raises(NotJudge):
        store.commit(history().entries)
    for one in (store, successor):
        one.close()
    second.leave()


# ── what is written is whole ────────────────────────────────────────────────────────────────────────────────────────


def test_a_transaction_that_is_taken_back_leaves_no_gap(store: PgStore) -> None:
    made = history()
    store.commit(made.entries[:3])
    wrong = replace(made.entries[3], at_s=float("nan"), orders=made.entries[0].orders * 2)
    sa.event.listen(store._engine, "before_cursor_execute", _refuse_orders, named=True)
    with pytest.raises(StoreError):
        store.commit([*made.entries[3:], wrong])
    sa.event.remove(store._engine, "before_cursor_execute", _refuse_orders)
    store.commit(made.entries[3:])
    image = store.load()
    rows = store.journal(after=0, limit=99)
    assert [position for position, _ in rows] == list(range(1, len(made.entries) + 1))
    assert list(unbroken(rows, image.hosts, image.fleet)) == made.entries


def _refuse_orders(
    conn: sa.Connection, cursor: "psycopg.Cursor[tuple[object, ...]]", statement: str, **_: object
) -> None:
    del conn
    if "INTO orders" in statement:
        cursor.execute("SELECT 1 / 0")


def test_a_connection_that_breaks_while_writing_ends_the_term(postgres: Cluster) -> None:
    """It may have broken on the way back: whoever went on from what he believes would give order numbers twice."""
    with Cable(postgres.port) as cable:
        place = postgres.place(port=cable.port)
        made = history()
        with closing(PgStore(place)) as store:
            store.commit(made.entries[:3])
            sa.event.listen(store._engine, "commit", lambda _: cable.cut())
            with pytest.raises(NotJudge, match="whether it was written is not known"):
                store.commit(made.entries[3:])
            with pytest.raises(NotJudge):  # nor is it known now
                store.commit(made.entries[3:])
            with pytest.raises(StoreError):
                store.load()


def test_a_refusal_of_the_database_is_no_end_of_a_term(postgres: Cluster, place: PgPlace, store: PgStore) -> None:
    made = history()
    with closing(postgres.connect()) as root:
        schema = schema_of(place)
        root.execute(f"ALTER TABLE {schema}.findings ADD CONSTRAINT full_disk CHECK (false)".encode())
        with pytest.raises(StoreError, match="full_disk") as refused:
            store.commit(made.entries)
        assert not isinstance(refused.value, NotJudge)
        root.execute(f"ALTER TABLE {schema}.findings DROP CONSTRAINT full_disk".encode())
    store.commit(made.entries)


def test_what_the_migrations_make_is_what_the_code_reads(store: PgStore) -> None:
    with store._engine.connect() as connection:
        differs = compare_metadata(MigrationContext.configure(connection), metadata)
    # SQLite's index has more in it than PostgreSQL's may; see the schema.
    assert {str(one[1].name) for one in differs if one[0].endswith("_index")} == {"journal_by_host"}
    assert len(differs) == len([one for one in differs if one[0].endswith("_index")])


def test_a_sentence_of_any_length_is_written(store: PgStore) -> None:
    made = history()
    store.commit([replace(made.entries[0], why="why " * 5000)])
    assert store.reasons(HostName("h1"), limit=1)[0][1] == "why " * 5000


def test_a_large_number_of_a_spool_is_written(store: PgStore) -> None:
    made = history()
    found = made.entries[-1]
    progress = SpoolProgress(spool=SpoolId("s"), seq=2**48 - 1)
    store.commit([replace(found, progress=progress)])
    assert store.load().spools == ((HostName("h1"), progress),)


def test_nothing_of_a_connection_lasts_for_ever_and_what_is_written_is_on_the_disk(place: PgPlace) -> None:
    with closing(connect(place)) as connection:
        for name, value in (
            ("statement_timeout", "30s"),
            ("lock_timeout", "8s"),
            ("idle_in_transaction_session_timeout", "5s"),
            ("synchronous_commit", "on"),
        ):
            assert connection.execute(f"SHOW {name}".encode()).fetchone() == (value,)
        said = connection.info.get_parameters()
        assert (said["keepalives_idle"], said["tcp_user_timeout"], said["connect_timeout"]) == ("3", "5000", "3")


def test_what_the_url_says_of_a_connection_wins(place: PgPlace) -> None:
    wanted = f"{place.url}%20-c%20statement_timeout%3D1000&connect_timeout=7&application_name=ours"
    with closing(connect(PgPlace(url=wanted))) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("1s",)
        said = connection.info.get_parameters()
        assert (said["connect_timeout"], said["application_name"]) == ("7", "ours")


def test_a_server_that_is_too_old_is_one_line() -> None:
    with pytest.raises(StoreError, match="db: PostgreSQL 14 or newer is needed, this one is 13"):
        see_version("db", 130011)
    see_version("db", 140000)


# ── looking after it ────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_is_checked_and_pruned_beside_its_judge(place: PgPlace, store: PgStore) -> None:
    made = Ledgerer()
    made.join(0.0, ["h1"])
    for day in range(1, 9):
        made.at(day * DAY, JobEnded(host=HostName("h1"), job=f"j{day}", ok=True, ran_seconds=60.0))
    store.commit(made.entries)
    gone = prune(place, before_s=5.5 * DAY)
    found = keeping.check(place)
    assert gone.entries + gone.kept == found.begins_at == len(made.entries) - 3
    assert (gone.entries, found.hosts, found.entries) == (5, 1, 3)
    assert prune(place, before_s=5.5 * DAY).entries == 0
    store.commit([replace(made.entries[-1], at_s=9 * DAY)])
    assert keeping.check(place).entries == 4


def test_another_versions_ledger_is_refused_and_left_alone(postgres: Cluster, place: PgPlace, store: PgStore) -> None:
    with closing(postgres.connect()) as root:
        root.execute(f"SET search_path = {schema_of(place)}".encode())
        root.execute("UPDATE alembic_version SET version_num = '0099'")
    for read_only in (True, False):
        with pytest.raises(OtherSchema, match="schema 0099 was written by a newer fleetd"):
            PgStore(place, read_only=read_only)
    seat = PgSeat(place, holder="c1")
    with pytest.raises(OtherSchema):
        seat.take()
    store.commit(history().entries)  # whoever has it goes on: no term was begun
    with pytest.raises(NotJudge):
        seat.held()


def test_tables_of_another_program_are_left_alone(postgres: Cluster, place: PgPlace) -> None:
    with closing(postgres.connect()) as root:
        root.execute(f"CREATE TABLE {schema_of(place)}.theirs (x int)".encode())
    with pytest.raises(StoreError, match="of another program: name another database or schema"):
        PgStore(place)


def test_a_database_that_cannot_hold_every_text_is_refused(postgres: Cluster) -> None:
    with closing(postgres.connect()) as root:
        root.execute("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with pytest.raises(StoreError, match="its encoding is LATIN1: make it with ENCODING 'UTF8'"):
        PgStore(PgPlace(url=postgres.url("latin")))


def test_a_database_that_is_not_there_is_one_line(postgres: Cluster) -> None:
    for url, says in (
        (postgres.url("nowhere"), 'database "nowhere" does not exist'),
        ("postgresql://fleetd@127.0.0.1:1/fleet", "Connection refused"),
        (postgres.url("postgres", schema="nowhere"), "no schema"),
    ):
        with pytest.raises(StoreError, match=says) as refused:
            PgSeat(PgPlace(url=url), holder="").take()
        assert "\n" not in str(refused.value)


def fleetd(*words: str) -> Result:
    try:
        return CliRunner().invoke(main, ["store", *words])
    finally:
        structlog.reset_defaults()  # a command logs where commands do


def test_the_commands_on_a_database(place: PgPlace, store: PgStore, tmp_path: Path) -> None:
    store.commit(history().entries)
    at = ("--ledger", place.url)
    checked = fleetd("check", *at)
    assert (checked.exit_code, "whole; 2 hosts, 5 entries" in checked.output) == (0, True), checked.output
    dumped = fleetd("backup", str(tmp_path / "b"), *at)
    assert (dumped.exit_code, f"pg_dump --format=custom --file={tmp_path / 'b'} " in dumped.output) == (2, True)
    assert fleetd("prune", *at, "--keep", "90d").exit_code == 0
    assert "pg_restore" in fleetd("restore", str(tmp_path / "b"), *at, "--reason", "r").output
    seat = PgSeat(place, holder="c1")
    judge = taken(seat)
    for words in (("upgrade", *at), ("restored", *at, "--reason", "r")):
        refused = fleetd(*words)
        assert (refused.exit_code, "a controller has this ledger: stop it first" in refused.output) == (1, True)
    judge.close()
    seat.leave()


def test_a_dump_that_was_put_back_is_told_and_leaves_order_numbers_out(place: PgPlace, store: PgStore) -> None:
    store.commit(history().entries)
    told = fleetd("restored", "--ledger", place.url, "--reason", "the disk")
    assert told.exit_code == 0, told.output
    with closing(PgStore(place, read_only=True)) as reader:
        assert all(host.orders_issued > 100_000 for host in reader.load().hosts)
        assert "the disk" in reader.reasons(HostName("h1"), limit=1)[0][1]
    assert fleetd("check", "--ledger", place.url).exit_code == 0


def test_a_password_on_the_command_line_is_refused_and_not_repeated() -> None:
    refused = fleetd("check", "--ledger", "postgresql://fleetd:s3cret@db/fleet")
    assert (refused.exit_code, "s3cret" in refused.output) == (2, False)
