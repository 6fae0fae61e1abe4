"""Changes beside appending: retract, replace, annotate, fork, several sessions at once; times of sessions.

* Every change takes the session's next sequence, so that `expect` notices it. Sequences without a message, of what was
  retracted and of such changes, are tombstones (`recollect.tombstone` has their form). `marked` is whether a session
  may have one, so that others are read as before.
* `recollect_append` looks a turn up only where there is one: the look alone made a batch half as dear again. The
  function has the arguments it had, so releases that know schema 2 call the better one.
* Metadata has a table of its own: in the session's row, every append would copy it.
* Times may be NULL: sessions that were made before have no `created_at`, and nobody changed them since `updated_at`.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = (
    """
ALTER TABLE recollect_sessions
    ADD COLUMN marked boolean NOT NULL DEFAULT false,
    ADD COLUMN created_at timestamptz,
    ADD COLUMN updated_at timestamptz""",
    "ALTER TABLE recollect_sessions ALTER COLUMN created_at SET DEFAULT clock_timestamp()",
    """
CREATE TABLE recollect_about (
    session_id bigint PRIMARY KEY,
    metadata bytea NOT NULL
)""",
    # Roles that may use the other tables may use this one: they go on working while the owner migrates.
    """
DO $$
DECLARE
    granted record;
BEGIN
    FOR granted IN
        SELECT a.grantee, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a
         WHERE c.oid = 'recollect_messages'::regclass AND a.grantee <> c.relowner
    LOOP
        EXECUTE 'GRANT ' || granted.privilege_type || ' ON recollect_about TO ' ||
            CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(granted.grantee)) END;
    END LOOP;
END $$""",
)

# Appends of one batch arrive sorted by name, so two batches lock sessions in the same order and never deadlock.
# The first UPDATE serves nearly every append. Where it finds no row, the second half of the loop finds out why.
# A repeated turn and a conflict lock the row too: that gives the transaction something to flush, so its answer is as
# durable as the write it speaks of. The UPDATE's snapshot may be older than a turn that another append has just stored;
# then the turn's primary key tells, the counter is put back, and the next round of the loop sees it.
APPEND = """
CREATE OR REPLACE FUNCTION recollect_append(
    names bytea[], sizes integer[], records bytea[], turn_ids bytea[], fingerprints bytea[], expects bigint[],
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
    known record;
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
            IF turn_id IS NULL THEN
                UPDATE recollect_sessions s
                   SET last = s.last + size,
                       updated_at = clock_timestamp(),
                       expires_at = CASE
                           WHEN ttl_kept AND s.floor < s.last THEN coalesce(s.expires_at, clock_timestamp() + ttl)
                           ELSE clock_timestamp() + ttl END
                 WHERE sha256(s.name) = sha256(names[i])
                   AND (expected IS NULL OR s.last = expected)
                   AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
                RETURNING s.id, s.last INTO found_id, found_last;
            ELSE
                UPDATE recollect_sessions s
                   SET last = s.last + size,
                       turns = s.turns + 1,
                       updated_at = clock_timestamp(),
                       expires_at = CASE
                           WHEN ttl_kept AND s.floor < s.last THEN coalesce(s.expires_at, clock_timestamp() + ttl)
                           ELSE clock_timestamp() + ttl END
                 WHERE sha256(s.name) = sha256(names[i])
                   AND (expected IS NULL OR s.last = expected)
                   AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
                   AND NOT EXISTS (
                           SELECT FROM recollect_turns t WHERE t.session_id = s.id AND t.turn = turn_id)
                RETURNING s.id, s.last, s.turns INTO found_id, found_last, found_turns;
            END IF;

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
                    SELECT t.first, t.last, t.fingerprint INTO known
                      FROM recollect_turns t WHERE t.session_id = was.id AND t.turn = turn_id;
                    IF FOUND THEN
                        outcomes := outcomes || ARRAY[
                            CASE WHEN known.fingerprint <> fingerprints[i] THEN 3 ELSE 1 END, known.first, known.last];
                        EXIT;
                    END IF;
                END IF;
                IF expected <> was.last THEN
                    outcomes := outcomes || ARRAY[2, was.last, was.last];
                    EXIT;
                END IF;
                PERFORM recollect_expire(was.id);
                CONTINUE;
            END IF;

            IF turn_id IS NOT NULL THEN
                INSERT INTO recollect_turns (session_id, turn, first, last, fingerprint)
                VALUES (found_id, turn_id, found_last - size + 1, found_last, fingerprints[i])
                ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN
                    UPDATE recollect_sessions s SET last = s.last - size, turns = s.turns - 1
                     WHERE s.id = found_id;
                    CONTINUE;
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

SETTINGS = """
CREATE FUNCTION recollect_settings(commit_mode text, settings text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF concat_ws(' ', current_setting('fsync'), current_setting('full_page_writes'),
                 current_setting('synchronous_standby_names')) <> settings THEN
        RAISE EXCEPTION 'durability settings changed since the store was opened' USING ERRCODE = 'RC001';
    END IF;
    IF current_setting('synchronous_commit') <> commit_mode THEN
        PERFORM set_config('synchronous_commit', commit_mode, true);
    END IF;
END $$"""

# The end of a session whose time is over, by the next write to it.
EXPIRE = """
CREATE FUNCTION recollect_expire(the_session bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE recollect_sessions s SET floor = s.last, expires_at = NULL, marked = false
     WHERE s.id = the_session AND s.expires_at <= clock_timestamp();
    IF FOUND THEN
        DELETE FROM recollect_about a WHERE a.session_id = the_session;
    END IF;
END $$"""

# All or none of the appends. The outcomes that stand in the way are the detail of the error.
APPEND_ALL = """
CREATE FUNCTION recollect_append_all(
    names bytea[], sizes integer[], records bytea[], turn_ids bytea[], fingerprints bytea[], expects bigint[],
    ttl interval, ttl_kept boolean, turns_kept integer, commit_mode text, settings text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    outcomes bigint[] := recollect_append(
        names, sizes, records, turn_ids, fingerprints, expects, ttl, ttl_kept, turns_kept, commit_mode, settings);
BEGIN
    FOR i IN 1 .. cardinality(names) LOOP
        IF outcomes[3 * i - 2] > 1 THEN
            RAISE EXCEPTION 'one of several appends is refused'
                USING ERRCODE = 'RC002', DETAIL = array_to_string(outcomes, ' ');
        END IF;
    END LOOP;
    RETURN outcomes;
END $$"""

# How every other change begins: {0, the session's id, last} with the session locked, {1, first, last} if the turn is
# known, {2, last, last} in conflict with `expected`, {3, …} if the turn is another one's, {4, 0, last} if nothing is
# there to be changed.
BEGIN = """
CREATE FUNCTION recollect_begin(
    the_name bytea, turn_id bytea, its_fingerprint bytea, expected bigint, made boolean,
    commit_mode text, settings text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    was record;
    known record;
BEGIN
    PERFORM recollect_settings(commit_mode, settings);
    LOOP
        SELECT s.id, s.last, s.floor, coalesce(s.expires_at <= clock_timestamp(), false) AS expired INTO was
          FROM recollect_sessions s WHERE sha256(s.name) = sha256(the_name) FOR UPDATE;
        EXIT WHEN FOUND;
        IF expected <> 0 THEN
            RETURN ARRAY[2, 0, 0]::bigint[];
        ELSIF NOT made THEN
            RETURN ARRAY[4, 0, 0]::bigint[];
        END IF;
        INSERT INTO recollect_sessions (name, last) VALUES (the_name, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    IF turn_id IS NOT NULL THEN
        SELECT t.first, t.last, t.fingerprint INTO known
          FROM recollect_turns t WHERE t.session_id = was.id AND t.turn = turn_id;
        IF FOUND THEN
            RETURN ARRAY[CASE WHEN known.fingerprint IS DISTINCT FROM its_fingerprint THEN 3 ELSE 1 END,
                         known.first, known.last];
        END IF;
    END IF;
    IF expected <> was.last THEN
        RETURN ARRAY[2, was.last, was.last];
    ELSIF NOT made AND (was.expired OR was.floor = was.last) THEN
        RETURN ARRAY[4, 0, was.last];
    ELSIF was.expired THEN
        PERFORM recollect_expire(was.id);
    END IF;
    RETURN ARRAY[0, was.id, was.last];
END $$"""

# How it ends: the counter, the time, and the turn.
FINISH = """
CREATE FUNCTION recollect_finish(
    the_session bigint, the_first bigint, the_last bigint, turn_id bytea, its_fingerprint bytea, turns_kept integer
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    found_turns integer;
BEGIN
    UPDATE recollect_sessions s
       SET last = the_last, updated_at = clock_timestamp(),
           turns = s.turns + CASE WHEN turn_id IS NULL THEN 0 ELSE 1 END
     WHERE s.id = the_session RETURNING s.turns INTO found_turns;
    IF turn_id IS NOT NULL THEN
        INSERT INTO recollect_turns (session_id, turn, first, last, fingerprint)
        VALUES (the_session, turn_id, the_first, the_last, its_fingerprint);
        IF found_turns >= turns_kept + turns_kept / 8 + 16 THEN
            PERFORM recollect_prune_turns(the_session, turns_kept);
        END IF;
    END IF;
    RETURN ARRAY[0, the_first, the_last];
END $$"""

# The first sequence of a tombstone's run; NULL of any other record.
RUN = """
CREATE FUNCTION recollect_run(record bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN substring(record FROM 1 FOR 1) = '\\x00'::bytea
                 AND encode(substring(record FROM 2), 'escape') ~ '^[0-9]{1,15}$'
           THEN encode(substring(record FROM 2), 'escape')::bigint END
$$"""

# A tombstone in the place of one sequence, joined with those before and after it.
HIDE = """
CREATE FUNCTION recollect_hide(the_session bigint, hidden bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run_first bigint;
    following record;
BEGIN
    DELETE FROM recollect_messages m
     WHERE m.session_id = the_session AND m.sequence = hidden - 1 AND recollect_run(m.record) IS NOT NULL
    RETURNING recollect_run(m.record) INTO run_first;
    run_first := coalesce(run_first, hidden);
    SELECT m.sequence, recollect_run(m.record) AS first INTO following
      FROM recollect_messages m WHERE m.session_id = the_session AND m.sequence > hidden
     ORDER BY m.sequence LIMIT 1;
    IF following.first = hidden + 1 THEN
        DELETE FROM recollect_messages m WHERE m.session_id = the_session AND m.sequence = hidden;
        UPDATE recollect_messages m SET record = '\\x00'::bytea || convert_to(run_first::text, 'UTF8')
         WHERE m.session_id = the_session AND m.sequence = following.sequence;
    ELSE
        INSERT INTO recollect_messages (session_id, sequence, record)
        VALUES (the_session, hidden, '\\x00'::bytea || convert_to(run_first::text, 'UTF8'))
        ON CONFLICT (session_id, sequence) DO UPDATE SET record = excluded.record;
    END IF;
    UPDATE recollect_sessions s SET marked = true WHERE s.id = the_session AND NOT s.marked;
END $$"""

# {5, sequence, last} if a sequence has no message. `retracted` is in ascending order.
RETRACT = """
CREATE FUNCTION recollect_retract(
    the_name bytea, retracted bigint[], turn_id bytea, its_fingerprint bytea, expected bigint, turns_kept integer,
    commit_mode text, settings text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    begun bigint[] := recollect_begin(the_name, turn_id, its_fingerprint, expected, false, commit_mode, settings);
    absent bigint;
BEGIN
    IF begun[1] = 4 THEN
        RETURN ARRAY[5, retracted[1], begun[3]];
    ELSIF begun[1] <> 0 THEN
        RETURN begun;
    END IF;
    SELECT min(r.sequence) INTO absent FROM unnest(retracted) AS r (sequence)
     WHERE NOT EXISTS (
               SELECT FROM recollect_messages m JOIN recollect_sessions s ON s.id = m.session_id
                WHERE m.session_id = begun[2] AND m.sequence = r.sequence AND m.sequence > s.floor
                  AND recollect_run(m.record) IS NULL);
    IF absent IS NOT NULL THEN
        RETURN ARRAY[5, absent, begun[3]];
    END IF;
    FOR i IN 1 .. cardinality(retracted) LOOP
        PERFORM recollect_hide(begun[2], retracted[i]);
    END LOOP;
    PERFORM recollect_hide(begun[2], begun[3] + 1);
    RETURN recollect_finish(begun[2], begun[3] + 1, begun[3] + 1, turn_id, its_fingerprint, turns_kept);
END $$"""

# One number more: the session's id if messages are left to free, else 0.
REPLACE = """
CREATE FUNCTION recollect_replace(
    the_name bytea, records bytea[], turn_id bytea, its_fingerprint bytea, expected bigint, ttl interval,
    ttl_kept boolean, turns_kept integer, rows_max integer, commit_mode text, settings text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    begun bigint[] := recollect_begin(the_name, turn_id, its_fingerprint, expected, true, commit_mode, settings);
    finished bigint[];
BEGIN
    IF begun[1] <> 0 THEN
        RETURN begun || 0::bigint;
    END IF;
    UPDATE recollect_sessions s
       SET floor = s.last,
           marked = false,
           expires_at = CASE
               WHEN ttl_kept AND s.floor < s.last THEN coalesce(s.expires_at, clock_timestamp() + ttl)
               ELSE clock_timestamp() + ttl END
     WHERE s.id = begun[2];
    INSERT INTO recollect_messages (session_id, sequence, record)
    SELECT begun[2], begun[3] + r.place, r.record FROM unnest(records) WITH ORDINALITY AS r (record, place);
    IF cardinality(records) = 0 THEN
        PERFORM recollect_hide(begun[2], begun[3] + 1);
    END IF;
    finished := recollect_finish(
        begun[2], begun[3] + 1, begun[3] + greatest(cardinality(records), 1), turn_id, its_fingerprint, turns_kept);
    RETURN finished || CASE WHEN recollect_free(begun[2], rows_max) THEN begun[2] ELSE 0 END;
END $$"""

ANNOTATE = """
CREATE FUNCTION recollect_annotate(
    the_name bytea, its_metadata bytea, turn_id bytea, its_fingerprint bytea, expected bigint, ttl interval,
    turns_kept integer, commit_mode text, settings text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    begun bigint[] := recollect_begin(the_name, turn_id, its_fingerprint, expected, true, commit_mode, settings);
BEGIN
    IF begun[1] <> 0 THEN
        RETURN begun;
    END IF;
    UPDATE recollect_sessions s SET expires_at = clock_timestamp() + ttl WHERE s.id = begun[2] AND s.floor = s.last;
    PERFORM recollect_hide(begun[2], begun[3] + 1);
    INSERT INTO recollect_about VALUES (begun[2], its_metadata)
    ON CONFLICT (session_id) DO UPDATE SET metadata = excluded.metadata;
    RETURN recollect_finish(begun[2], begun[3] + 1, begun[3] + 1, turn_id, its_fingerprint, turns_kept);
END $$"""

# The copy has its source's sequences. {6, last, last} if there is a session of the new name already.
FORK = """
CREATE FUNCTION recollect_fork(
    the_name bytea, new_name bytea, upto bigint, turn_id bytea, its_fingerprint bytea, expected bigint, ttl interval,
    turns_kept integer, commit_mode text, settings text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    source bigint[];
    begun bigint[];
    end_of_copy bigint;
    new_floor bigint;
    copied bigint;
    run_first bigint;
    cut boolean;
    was record;
BEGIN
    PERFORM FROM recollect_turns t JOIN recollect_sessions s ON s.id = t.session_id
      WHERE sha256(s.name) = sha256(new_name) AND t.turn = turn_id;
    IF NOT FOUND THEN
        source := recollect_begin(the_name, NULL, NULL, expected, false, commit_mode, settings);
        IF source[1] <> 0 THEN
            RETURN source;
        END IF;
    END IF;
    begun := recollect_begin(new_name, turn_id, its_fingerprint, NULL, true, commit_mode, settings);
    IF begun[1] <> 0 THEN
        RETURN begun;
    ELSIF begun[3] <> 0 THEN
        RETURN ARRAY[6, begun[3], begun[3]];
    END IF;
    SELECT s.floor, s.marked INTO was FROM recollect_sessions s WHERE s.id = source[2];
    end_of_copy := greatest(least(source[3], upto), 1);
    new_floor := least(was.floor, end_of_copy - 1);
    INSERT INTO recollect_messages (session_id, sequence, record)
    SELECT begun[2], m.sequence, m.record FROM recollect_messages m
     WHERE m.session_id = source[2] AND m.sequence > was.floor AND m.sequence <= least(end_of_copy, upto);
    SELECT coalesce(max(m.sequence), new_floor) INTO copied FROM recollect_messages m WHERE m.session_id = begun[2];
    SELECT recollect_run(m.record) INTO run_first FROM recollect_messages m
     WHERE m.session_id = source[2] AND m.sequence > end_of_copy ORDER BY m.sequence LIMIT 1;
    cut := copied < end_of_copy AND (end_of_copy <= was.floor OR upto < 1 OR coalesce(run_first <= end_of_copy, false));
    IF cut THEN -- the copy ends within a run, or before the first message
        INSERT INTO recollect_messages (session_id, sequence, record)
        VALUES (begun[2], end_of_copy, '\\x00'::bytea || convert_to((copied + 1)::text, 'UTF8'));
    END IF;
    UPDATE recollect_sessions s
       SET floor = new_floor, freed = new_floor, marked = was.marked OR cut, expires_at = clock_timestamp() + ttl
     WHERE s.id = begun[2];
    INSERT INTO recollect_about SELECT begun[2], a.metadata FROM recollect_about a WHERE a.session_id = source[2];
    RETURN recollect_finish(begun[2], end_of_copy, end_of_copy, turn_id, its_fingerprint, turns_kept);
END $$"""

# {0, the id of the session if messages are left to free or 0, last}, or {2, last, last} in conflict with `expected`.
FORGET = """
CREATE FUNCTION recollect_forget(the_name bytea, expected bigint, rows_max integer, commit_mode text, settings text)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    begun bigint[] := recollect_begin(the_name, NULL, NULL, expected, false, commit_mode, settings);
    found_id bigint;
BEGIN
    IF begun[1] = 2 THEN
        RETURN begun;
    END IF;
    UPDATE recollect_sessions s
       SET floor = s.last, expires_at = NULL, marked = false, updated_at = clock_timestamp()
     WHERE sha256(s.name) = sha256(the_name) RETURNING s.id INTO found_id;
    DELETE FROM recollect_about a WHERE a.session_id = found_id;
    IF found_id IS NOT NULL AND recollect_free(found_id, rows_max) THEN
        RETURN ARRAY[0, found_id, begun[3]];
    END IF;
    RETURN ARRAY[0, 0, begun[3]];
END $$"""


def upgrade() -> None:
    for statement in (
        *TABLES,
        *(SETTINGS, EXPIRE, APPEND, APPEND_ALL, BEGIN, FINISH),
        *(RUN, HIDE, RETRACT, REPLACE, ANNOTATE, FORK, FORGET),
    ):
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("changes are not taken back: releases that know schema 1 work with this one")
