"""The first schema: sessions, their messages, and the turns they remember.

* Names and records are `bytea`: text cannot hold NUL or lone surrogates.
* A session is found by the SHA-256 of its name, because an index entry has room for 2,700 bytes and a name may have
  100,000. The index is on an expression of a column that never changes, so an append's update of the session stays
  heap-only (HOT); the fill factor leaves room for it on the page.
* `last` is the counter that gives out sequences; its row lock is what puts appends in order.
* Messages up to `floor` are forgotten or expired and never shown again; those up to `freed` are deleted.
* There is no foreign key: its check would lock the session a second time with each message.
* `expires_at` has no index: it would make every append of a session with a time to live write index entries.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    """
CREATE TABLE recollect_meta (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    identity uuid NOT NULL DEFAULT gen_random_uuid(),
    oldest_release_schema integer NOT NULL
)""",
    """
CREATE TABLE recollect_sessions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name bytea NOT NULL,
    last bigint NOT NULL,
    floor bigint NOT NULL DEFAULT 0,
    freed bigint NOT NULL DEFAULT 0,
    turns integer NOT NULL DEFAULT 0,
    expires_at timestamptz
) WITH (fillfactor = 50)""",
    "CREATE UNIQUE INDEX recollect_sessions_name ON recollect_sessions (sha256(name))",
    """
CREATE TABLE recollect_messages (
    session_id bigint NOT NULL,
    sequence bigint NOT NULL,
    record bytea NOT NULL,
    PRIMARY KEY (session_id, sequence)
)""",
    """
CREATE TABLE recollect_turns (
    session_id bigint NOT NULL,
    turn bytea NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (session_id, turn)
)""",
    "INSERT INTO recollect_meta (oldest_release_schema) VALUES (1)",
)

# Appends of one batch arrive sorted by name, so two batches lock sessions in the same order and never deadlock.
# The first UPDATE serves nearly every append. Where it finds no row, the second half of the loop finds out why.
# A repeated turn and a conflict lock the row too: that gives the transaction something to flush, so its answer is as
# durable as the write it speaks of.
APPEND = """
CREATE FUNCTION recollect_append(
    names bytea[], sizes integer[], records bytea[], turn_ids bytea[], expects bigint[],
    ttl interval, ttl_kept boolean, turns_kept integer, commit_mode text, settings text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    outcomes bigint[] := '{}';
    taken integer := 0;
    size integer;
    turn_id bytea;
    expected bigint;
    found_id bigint;
    found_last bigint;
    found_turns integer;
    was record;
BEGIN
    IF concat_ws(' ', current_setting('fsync'), current_setting('full_page_writes'),
                 current_setting('synchronous_standby_names')) <> settings THEN
        RAISE EXCEPTION 'durability settings changed since the store was opened' USING ERRCODE = 'RC001';
    END IF;
    IF current_setting('synchronous_commit') <> commit_mode THEN
        PERFORM set_config('synchronous_commit', commit_mode, true);
    END IF;
    FOR i IN 1 .. cardinality(names) LOOP
        size := sizes[i];
        turn_id := turn_ids[i];
        expected := expects[i];
        LOOP
            UPDATE recollect_sessions s
               SET last = s.last + size,
                   turns = s.turns + CASE WHEN turn_id IS NULL THEN 0 ELSE 1 END,
                   expires_at = CASE
                       WHEN ttl_kept AND s.floor < s.last THEN coalesce(s.expires_at, clock_timestamp() + ttl)
                       ELSE clock_timestamp() + ttl END
             WHERE sha256(s.name) = sha256(names[i])
               AND (expected IS NULL OR s.last = expected)
               AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
            RETURNING s.id, s.last, s.turns INTO found_id, found_last, found_turns;

            IF NOT FOUND THEN
                SELECT s.id, s.last INTO was
                  FROM recollect_sessions s WHERE sha256(s.name) = sha256(names[i]) FOR UPDATE;
                IF NOT FOUND THEN
                    IF expected <> 0 THEN
                        outcomes := outcomes || ARRAY[2, 0, 0]::bigint[];
                        EXIT;
                    END IF;
                    INSERT INTO recollect_sessions (name, last) VALUES (names[i], 0) ON CONFLICT DO NOTHING;
                    CONTINUE;
                END IF;
                IF turn_id IS NOT NULL THEN
                    SELECT t.first, t.last INTO found_id, found_last
                      FROM recollect_turns t WHERE t.session_id = was.id AND t.turn = turn_id;
                    IF FOUND THEN
                        outcomes := outcomes || ARRAY[1, found_id, found_last];
                        EXIT;
                    END IF;
                END IF;
                IF expected <> was.last THEN
                    outcomes := outcomes || ARRAY[2, was.last, was.last];
                    EXIT;
                END IF;
                UPDATE recollect_sessions s SET floor = s.last, expires_at = NULL
                 WHERE s.id = was.id AND s.expires_at <= clock_timestamp();
                CONTINUE;
            END IF;

            IF turn_id IS NOT NULL THEN
                INSERT INTO recollect_turns (session_id, turn, first, last)
                VALUES (found_id, turn_id, found_last - size + 1, found_last) ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN
                    UPDATE recollect_sessions s SET last = s.last - size, turns = s.turns - 1
                     WHERE s.id = found_id;
                    SELECT t.first, t.last INTO found_id, found_last
                      FROM recollect_turns t WHERE t.session_id = found_id AND t.turn = turn_id;
                    outcomes := outcomes || ARRAY[1, found_id, found_last];
                    EXIT;
                END IF;
                IF found_turns >= turns_kept + turns_kept / 8 + 16 THEN
                    PERFORM recollect_prune_turns(found_id, turns_kept);
                END IF;
            END IF;
            IF size = 1 THEN
                INSERT INTO recollect_messages (session_id, sequence, record)
                VALUES (found_id, found_last, records[taken + 1]);
            ELSE
                INSERT INTO recollect_messages (session_id, sequence, record)
                SELECT found_id, found_last - size + r.place, r.record
                  FROM unnest(records[taken + 1 : taken + size]) WITH ORDINALITY AS r (record, place);
            END IF;
            outcomes := outcomes || ARRAY[0, found_last - size + 1, found_last];
            EXIT;
        END LOOP;
        taken := taken + size;
    END LOOP;
    RETURN outcomes;
END $$"""

# Some more turns than asked for are kept, so that most appends delete nothing and a second index is not needed.
PRUNE_TURNS = """
CREATE FUNCTION recollect_prune_turns(the_session bigint, turns_kept integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    pruned integer;
BEGIN
    DELETE FROM recollect_turns t
     WHERE t.session_id = the_session
       AND t.last <= (SELECT o.last FROM recollect_turns o WHERE o.session_id = the_session
                       ORDER BY o.last DESC OFFSET turns_kept LIMIT 1);
    GET DIAGNOSTICS pruned = ROW_COUNT;
    UPDATE recollect_sessions s SET turns = s.turns - pruned WHERE s.id = the_session;
END $$"""

# Deletes at most `rows_max` messages that are not shown any more; says whether there are more of them.
FREE = """
CREATE FUNCTION recollect_free(the_session bigint, rows_max integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    was record;
    target bigint;
BEGIN
    SELECT s.floor, s.freed INTO was FROM recollect_sessions s WHERE s.id = the_session FOR UPDATE;
    IF NOT FOUND OR was.freed >= was.floor THEN
        RETURN false;
    END IF;
    target := least(was.floor, was.freed + rows_max);
    DELETE FROM recollect_messages m
     WHERE m.session_id = the_session AND m.sequence > was.freed AND m.sequence <= target;
    UPDATE recollect_sessions s SET freed = target WHERE s.id = the_session;
    RETURN target < was.floor;
END $$"""

# The id of the session if messages are left to free, NULL if none are.
FORGET = """
CREATE FUNCTION recollect_forget(the_name bytea, rows_max integer, commit_mode text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    found_id bigint;
BEGIN
    IF current_setting('synchronous_commit') <> commit_mode THEN
        PERFORM set_config('synchronous_commit', commit_mode, true);
    END IF;
    UPDATE recollect_sessions s SET floor = s.last, expires_at = NULL
     WHERE sha256(s.name) = sha256(the_name) RETURNING s.id INTO found_id;
    IF FOUND AND recollect_free(found_id, rows_max) THEN
        RETURN found_id;
    END IF;
    RETURN NULL;
END $$"""


def upgrade() -> None:
    for statement in (*TABLES, PRUNE_TURNS, APPEND, FREE, FORGET):
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError(
        "the first schema has nothing to go back to; drop its tables to remove the memory"
    )
