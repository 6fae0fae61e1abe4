"""Fingerprints of turns: the same turn id with other messages is refused.

* The column may be NULL: turns that were stored before have no fingerprint, and are taken for retries as they were.
* `recollect_append` with one argument more stands beside the first one, which releases that know schema 1 go on
  calling: `oldest_release_schema` stays 1.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

FINGERPRINT = "ALTER TABLE recollect_turns ADD COLUMN fingerprint bytea"

# Appends of one batch arrive sorted by name, so two batches lock sessions in the same order and never deadlock.
# The first UPDATE serves nearly every append. Where it finds no row, the second half of the loop finds out why.
# A repeated turn and a conflict lock the row too: that gives the transaction something to flush, so its answer is as
# durable as the write it speaks of. The UPDATE's snapshot may be older than a turn that another append has just stored;
# then the turn's primary key tells, the counter is put back, and the next round of the loop sees it.
APPEND = """
CREATE FUNCTION recollect_append(
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
            UPDATE recollect_sessions s
               SET last = s.last + size,
                   turns = s.turns + CASE WHEN turn_id IS NULL THEN 0 ELSE 1 END,
                   expires_at = CASE
                       WHEN ttl_kept AND s.floor < s.last THEN coalesce(s.expires_at, clock_timestamp() + ttl)
                       ELSE clock_timestamp() + ttl END
             WHERE sha256(s.name) = sha256(names[i])
               AND (expected IS NULL OR s.last = expected)
               AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
               AND (turn_id IS NULL OR NOT EXISTS (
                       SELECT FROM recollect_turns t WHERE t.session_id = s.id AND t.turn = turn_id))
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
                UPDATE recollect_sessions s SET floor = s.last, expires_at = NULL
                 WHERE s.id = was.id AND s.expires_at <= clock_timestamp();
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


def upgrade() -> None:
    op.execute(FINGERPRINT)
    op.execute(APPEND)


def downgrade() -> None:
    raise NotImplementedError(
        "fingerprints are not taken back: releases that know schema 1 work with this one"
    )
