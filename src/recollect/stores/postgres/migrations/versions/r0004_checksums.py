"""A checksum in each session's row, so that a row that has changed on the disk is not believed.

A session's row says whose messages are shown, and which: a flipped bit in its id shows another session's, one in
`floor` hides some, one in `expires_at` all of them. Pages have checksums only if the server was set up with them.

* `checked` covers what no message can contradict: the name, the id, the floor, the mark and the expiry. A counter
  that has changed is noticed by the numbers of the messages.
* The engine generates it with every change, whichever release or tool makes the change. The hashes are those by which
  PostgreSQL divides tables into partitions, so they stay the same from release to release.
* Whoever follows the index computes it with the name that was asked for, which also shows an index that leads to the
  row of another session.
* The functions that change a session look before they do: a change would generate the checksum anew, and seal the
  damage.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def checksum(row: str, name: str) -> str:
    """The checksum of a row, as SQL. `row` is the alias of the table and a dot, or nothing."""
    marked = f"{row}marked::integer"
    expires = f"encode(timestamptz_send({row}expires_at), 'hex') COLLATE \"C\""
    return (
        f"hashtextextended(encode({name}, 'hex') COLLATE \"C\", hashint8extended({row}id, "
        f"hashint8extended({row}floor, coalesce(hashtextextended({expires}, {marked}), {marked}))))"
    )


def _intact(name: str) -> str:
    return f"s.checked = {checksum('s.', name)}"


CHANGED = """RAISE EXCEPTION 'the session''s row has changed on the disk: its checksum does not match'
            USING ERRCODE = 'RC003';"""

COLUMN = f"""
ALTER TABLE recollect_sessions ADD COLUMN checked bigint GENERATED ALWAYS AS ({checksum("", "name")}) STORED"""

# As before (r0003), but a row that is not intact is refused.
APPEND = f"""
CREATE OR REPLACE FUNCTION recollect_append(
    names bytea[], sizes integer[], records bytea[], turn_ids bytea[], fingerprints bytea[], expects bigint[],
    ttl interval, ttl_kept boolean, turns_kept integer, commit_mode text, settings text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    outcomes bigint[] := '{{}}';
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
                   AND {_intact("names[i]")}
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
                   AND {_intact("names[i]")}
                   AND NOT EXISTS (
                           SELECT FROM recollect_turns t WHERE t.session_id = s.id AND t.turn = turn_id)
                RETURNING s.id, s.last, s.turns INTO found_id, found_last, found_turns;
            END IF;

            IF NOT FOUND THEN
                SELECT s.id, s.last, {_intact("names[i]")} AS intact INTO was
                  FROM recollect_sessions s WHERE sha256(s.name) = sha256(names[i]) FOR UPDATE;
                IF NOT FOUND THEN
                    IF expected <> 0 THEN
                        outcomes := outcomes || ARRAY[2, 0, 0]::bigint[];
                        EXIT;
                    END IF;
                    INSERT INTO recollect_sessions (name, last) VALUES (names[i], 0) ON CONFLICT DO NOTHING;
                    CONTINUE;
                END IF;
                IF was.intact IS NOT TRUE THEN
                    {CHANGED}
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

# As before (r0003), but a row that is not intact is refused.
BEGIN = f"""
CREATE OR REPLACE FUNCTION recollect_begin(
    the_name bytea, turn_id bytea, its_fingerprint bytea, expected bigint, made boolean,
    commit_mode text, settings text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    was record;
    known record;
BEGIN
    PERFORM recollect_settings(commit_mode, settings);
    LOOP
        SELECT s.id, s.last, s.floor, coalesce(s.expires_at <= clock_timestamp(), false) AS expired,
               {_intact("the_name")} AS intact INTO was
          FROM recollect_sessions s WHERE sha256(s.name) = sha256(the_name) FOR UPDATE;
        EXIT WHEN FOUND;
        IF expected <> 0 THEN
            RETURN ARRAY[2, 0, 0]::bigint[];
        ELSIF NOT made THEN
            RETURN ARRAY[4, 0, 0]::bigint[];
        END IF;
        INSERT INTO recollect_sessions (name, last) VALUES (the_name, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    IF was.intact IS NOT TRUE THEN
        {CHANGED}
    END IF;
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


def upgrade() -> None:
    for statement in (COLUMN, APPEND, BEGIN):
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError(
        "the checksum is not taken back: releases that know schema 1 work with this one"
    )
