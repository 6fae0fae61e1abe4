"""Folding reads into the evidence, at a cost that grows with what changed since the read before.

A read is stored as a difference, so only the elements that left or entered the view are looked at. That is
enough to know, for every acknowledged message, the first read that should have had it and did not:

- a message that leaves the view is missing if it was acknowledged before this read began;
- a message that is acknowledged while not in the view waits in `pending` until a read that began later either
  shows it or proves it missing;
- a missing message that enters a view again was not lost, only late.

Reads may overlap: one that began before an acknowledgement may end after it. Such a read proves nothing about
that message, which goes back to `pending`. Nor does it bring a missing message back if it began before the read that
lacked the message had ended: it may show the state before the loss.
"""

from __future__ import annotations

from recollect.verify.judging import removals
from recollect.verify.judging.evidence import (
    DROPPED,
    IN_WHOLE,
    IN_WINDOW,
    NEVER,
    SEEN,
    Absence,
    Disagreement,
    Evidence,
    FirstRead,
    Hidden,
    Inversion,
    Overdue,
    Regression,
    Repeat,
    Sighting,
)
from recollect.verify.judging.op import ReadAsked, Seen
from recollect.verify.judging.read_deltas import View, from_runs
from recollect.verify.judging.retention import EngineClock, Life
from recollect.verify.judging.session_state import Chain, Purge, SessionEvidence

STRANGE = -1


class ReadFolder:
    """Applies one read after another; see the module's docstring."""

    def __init__(self, evidence: Evidence, clock: EngineClock) -> None:
        self.evidence = evidence
        self.clock = clock
        # The columns are bound once: they are looked up for every element of every read.
        self._turns, self._states, self._ranks = evidence.message_turn, evidence.state, evidence.rank
        self._seen_at, self._entered = evidence.seen_at, evidence.entered
        self._owners, self._dones = evidence.turn_session, evidence.turn_done
        self.strikes: list[int] = []
        self.struck = NEVER  # index of the latest disturbance that can have cost data
        self.begun_s = 0.0  # when the read that is being folded was invoked, and when it completed
        self.ended_s = 0.0

    def strike(self, index: int) -> None:
        """Data may be lost from this event on: the next read of each session is checked for what is left."""
        if self.struck != index:
            self.struck = index
            self.strikes.append(index)

    def fold_whole(self, session: SessionEvidence, read: int, seen: Seen, *, part: bool = False) -> None:
        """A read that had to return everything.

        With `part`, a `last` read that gave a few less than it was asked for, although there are as many. A store may
        begin a window where a user speaks, or leave out the result of a call that is not in it: so what comes before
        the first message that it gave is in doubt.
        """
        chain = session.whole
        removed = self._cut(chain, seen) if seen.skip or seen.keep != len(chain.view) else None
        tail: View = []
        if seen.tail:
            tail = self.evidence.odds.decode_tail(seen) if seen.odd else from_runs(seen.tail)
            moved = [(m, self._entered[m]) for m in removed if m >= 0] if removed else ()
            self._extend(session, chain, read, tail)
            for message, entered in moved:  # still there, only coded again because something before it left
                self._entered[message] = entered
        floor = _first_shown(session, chain) if part else NEVER
        if removed:
            self._leave(session, chain, read, removed, floor)
        if chain.pending:
            self._settle(session, chain, read, floor)
        if session.purge is not None or session.life is not None:
            self._judge_gone(session, chain, read, tail)
        if session.taken_back is not None:
            removals.find_returned(self.evidence, session, chain, read, tail)
        if session.vanished and floor == NEVER:
            self._regress(session, read)
        if self.struck > session.struck:
            self._recovered(session, read)
        if floor == NEVER or (session.complete == chain.last_read and not removed and not tail):
            session.complete = read
        chain.last_read = read
        session.last_read_by[self.evidence.read_process[read]] = read

    def fold_window(self, session: SessionEvidence, read: int, seen: Seen, ask: ReadAsked) -> None:
        """A `last` or `after` read: it must have whatever provably comes after its first element or cursor."""
        chain = session.window or self._open_window(session)
        removed = self._cut(chain, seen)
        tail: View = []
        if seen.tail:
            tail = self.evidence.odds.decode_tail(seen) if seen.odd else from_runs(seen.tail)
            self._extend(session, chain, read, tail)
        floor = _first_shown(session, chain) if ask.after is None else ask.after
        if floor != NEVER and floor < len(self._turns):
            # Numbers grow with time, so what slid out of the window cannot come after its floor.
            if removed and (session.missing or max(removed) > floor):
                self._leave(session, chain, read, removed, floor)
            if chain.pending:
                self._settle(session, chain, read, floor)
        if session.purge is not None or session.life is not None:
            self._judge_gone(session, chain, read, tail)
        if session.taken_back is not None:
            removals.find_returned(self.evidence, session, chain, read, tail)
        chain.last_read = read

    def _open_window(self, session: SessionEvidence) -> Chain:
        """The first window of a session is held against the whole reads and acknowledgements before it."""
        session.window = chain = Chain(IN_WINDOW)
        turn_done, message_turn = self.evidence.turn_done, self.evidence.message_turn
        shown = [m for m in session.whole.view if m >= 0 and turn_done[message_turn[m]] != NEVER]
        chain.pending = shown + session.whole.pending
        return chain

    def finish(self, session: SessionEvidence) -> None:
        """The history is over: a missing message that the latest view has was only late."""
        absences, state = self.evidence.absences, self.evidence.state
        for message, at in list(session.missing.items()):
            for chain in (session.whole, session.window):
                if chain is None or not state[message] & chain.bit:
                    continue
                if chain.last_read > absences[at].read and self._returned(session, message, chain.last_read):
                    break
        self._account(session)
        self.evidence.last_whole_read[session.number] = session.shows_everything
        self.evidence.last_ok_read[session.number] = session.last_ok_read
        maybe_before = session.life.maybe_before if session.life is not None else NEVER
        self.evidence.gone_before[session.number] = max(session.forget_floor, maybe_before)

    def miss_unreplaced(self, session: SessionEvidence, turns: list[int]) -> None:
        """If a replace in doubt did not happen, the messages it was to remove have to be there in the end."""
        evidence, read = self.evidence, session.shows_everything
        for message in removals.never_replaced(evidence, session, turns):
            evidence.state[message] &= ~DROPPED
            if not self.may_be_gone(session, message):
                turn = evidence.message_turn[message]
                self._miss(session, session.whole, message, read, evidence.turn_done[turn], NEVER)

    def _account(self, session: SessionEvidence) -> None:
        """Count what is kept: acknowledged, and in the last view of everything or at least in a window."""
        evidence, state = self.evidence, self.evidence.state
        turn_done, turn_invoked, message_turn = (
            evidence.turn_done,
            evidence.turn_invoked,
            evidence.message_turn,
        )
        view = session.whole.view if not session.whole.doubled else list(dict.fromkeys(session.whole.view))
        forgotten, missing = session.forget_done, session.missing
        # A message seen before a fault or a stop and not read after it does not count as kept: nobody knows.
        struck = max(
            *(found.injected for found in evidence.disturbances),
            *(index for index, _ in evidence.stops),
            NEVER,
            NEVER,
        )
        read_since = session.last_ok_read > struck
        kept = unchecked = 0
        for message in view:
            if message < 0 or message in missing:
                continue
            turn = message_turn[message]
            kept += turn_done[turn] != NEVER and turn_invoked[turn] > forgotten
        for message in session.whole.pending:
            if message not in missing:
                seen = bool(state[message] & SEEN)
                kept, unchecked = kept + seen, unchecked + (not seen)
        evidence.kept += kept if read_since else 0
        evidence.unchecked += unchecked if read_since else kept + unchecked

    def may_be_gone(self, session: SessionEvidence, message: int) -> bool:
        """Whether a forget, a compaction or an expiry explains that the message is not there."""
        evidence = self.evidence
        turn = evidence.message_turn[message]
        if evidence.turn_invoked[turn] < session.forget_floor or evidence.state[message] & DROPPED:
            return True
        if session.life is None:
            return False
        if evidence.header.refresh != "message":
            return evidence.turn_invoked[turn] < session.life.maybe_before
        retention = evidence.retention.get(turn)
        if retention is None:
            return False
        now_s = self.clock.high(retention.invoked_s, self.ended_s)  # it may have expired in between
        written_s = self.clock.low(retention.invoked_s, evidence.turn_done_s[turn] or self.ended_s)
        age_s = now_s - written_s
        return age_s >= retention.retention_s - evidence.header.clock_bound_s

    def hold_against_count(self, session: SessionEvidence, rows: int, invoked: int, done: int) -> None:
        """Missing messages are merely hidden if the engine, asked directly afterwards, still has the rows. Of a store
        that declares a window, a read shows no more than that, and first of all the newest."""
        read, window = session.complete, self.evidence.header.keeps_last
        if read == NEVER or session.mutations_open:
            return
        begun = self.evidence.read_invoked[read]
        if invoked < begun or session.last_mutation > begun:
            return
        missing, shown = list(session.missing), rows
        if window is not None:
            shown, missing = min(rows, window), sorted(missing, reverse=True)
        surplus = shown - self.evidence.read_size[read] - session.unknown_messages
        for message in missing[: max(0, surplus)]:
            self.evidence.hidden.setdefault(message, Hidden(message, read, done, rows))

    def _cut(self, chain: Chain, seen: Seen) -> View:
        """Reduce the view to what the read kept of it; returns the messages that left."""
        view = chain.view
        end = seen.skip + seen.keep
        if end > len(view) or seen.skip < 0 or seen.keep < 0:
            raise ValueError(f"keeps {seen.skip}..{end} of a view of {len(view)} elements")
        if end == len(view) and not seen.skip:
            return []
        if end == len(view) and seen.keep:  # the usual window: it slid
            removed = view[: seen.skip]
            del view[: seen.skip]
        else:
            removed = view[: seen.skip] + view[end:] if seen.keep else view[:]
            view[:] = view[seen.skip : end]
        states, mask = self._states, ~chain.bit
        for message in removed:
            if message >= 0:
                states[message] &= mask
        if chain.doubled:
            chain.doubled = {message for message in chain.doubled if message in view}
            for message in chain.doubled:
                states[message] |= chain.bit
        return removed

    def _extend(self, session: SessionEvidence, chain: Chain, read: int, tail: View) -> None:
        """Add the new elements to the view, noting those that are strange, doubled or out of order."""
        turns, owners, states, ranks = self._turns, self._owners, self._states, self._ranks
        view, bit, missing, peak = chain.view, chain.bit, session.missing, chain.peak
        known, number = len(turns), session.number
        before = chain.in_order
        if before == NEVER or not states[before] & bit:
            before = next((message for message in reversed(view) if message >= 0), NEVER)
        fresh: View = []
        for message in tail:
            if message < 0 or message >= known or owners[turns[message]] != number:
                self.strange(session, read, message)
                view.append(STRANGE)
                continue
            bits = states[message]
            if bits & bit:
                self._doubled(session, chain, read, message)
            else:
                states[message] = bits | bit | SEEN
                if bits & SEEN:
                    if fresh or (before != NEVER and ranks[message] < ranks[before]):
                        before = self._ordered(session, read, before, fresh, message)
                    else:
                        before = message
                else:
                    self._seen_at[message] = read
                    fresh.append(message)
                if bit == IN_WHOLE:
                    self._entered[message] = read
                if missing and message in missing:
                    self._returned(session, message, read)
                if message < peak:
                    peak = self._overtaken(chain, read, message, peak)
            if message > peak:
                peak = message
            view.append(message)
        chain.peak = peak
        chain.in_order = fresh[-1] if fresh else before
        for message in fresh:
            session.top_rank += 1.0
            ranks[message] = session.top_rank

    def _ordered(self, session: SessionEvidence, read: int, before: int, fresh: View, message: int) -> int:
        """Compare a message seen before with the order of earlier reads; returns the last one in order.

        Every message has a rank, and ranks grow along the order of the reads. Messages first seen now,
        between two known ones, get ranks between theirs. Ranks of messages that were never in one read
        together are a guess, so a conflict is a suspicion, which has to be proven with two reads.
        """
        rank = self.evidence.rank
        low = rank[before] if before != NEVER else 0.0
        high = rank[message]
        if high < low:
            self.evidence.disagreements.append(Disagreement(message, before, session.number, read))
            return before
        step = (high - low) / (len(fresh) + 1)
        for nth, newcomer in enumerate(fresh, 1):
            rank[newcomer] = low + nth * step
        fresh.clear()
        return message

    def _overtaken(self, chain: Chain, read: int, message: int, peak: int) -> int:
        """`peak`, invoked later, precedes `message`: wrong if the two did not overlap, or are one turn.

        Returns the greatest number that is really in the view.
        """
        evidence = self.evidence
        turn = evidence.message_turn[message]
        if not evidence.state[peak] & chain.bit:  # it left the view since
            peak = max(chain.view, default=NEVER)
            if peak < message:
                return peak
        done = evidence.turn_done[turn]
        later = NEVER
        if done != NEVER and done < evidence.turn_invoked[evidence.message_turn[peak]]:
            later = peak
        same = [m for m in evidence.turn_messages(turn) if m > message and evidence.state[m] & chain.bit]
        if later != NEVER or same:
            inversion = Inversion(message, same[0] if same else later, read, bool(same))
            evidence.inversions.setdefault(message, inversion)
        return peak

    def strange(self, session: SessionEvidence, read: int, element: int) -> None:
        evidence = self.evidence
        sighting = Sighting(element, session.number, read)
        if element >= 0:
            is_known = element < len(evidence.message_turn)
            (evidence.leaks if is_known else evidence.strangers).append(sighting)
            return
        odd = evidence.odds[element]
        if odd.message is None or not 0 <= odd.message < len(evidence.message_turn):
            (evidence.damaged if odd.damaged else evidence.strangers).append(sighting)
        elif evidence.session_of(odd.message) != session.number:
            evidence.leaks.append(sighting)
        else:
            evidence.altered.append(sighting)

    def _doubled(self, session: SessionEvidence, chain: Chain, read: int, message: int) -> None:
        chain.doubled.add(message)
        copies = 1 + chain.view.count(message)
        self.evidence.repeated.append(Repeat(message, session.number, read, copies))

    def _returned(self, session: SessionEvidence, message: int, read: int) -> bool:
        """A read has a missing message again. It does not count if it overlaps the read without it: it may be older."""
        evidence, at = self.evidence, session.missing[message]
        absence = evidence.absences[at]
        if evidence.read_invoked[read] < evidence.read_done[absence.read]:
            return False
        del session.missing[message]
        evidence.absences[at] = absence._replace(back=read)
        return True

    def _leave(self, session: SessionEvidence, chain: Chain, read: int, removed: View, floor: int) -> None:
        """Messages that were in the view and no longer are."""
        evidence = self.evidence
        begun = evidence.read_invoked[read]
        for message in removed:
            if message < 0 or evidence.state[message] & chain.bit:
                continue  # something strange, or it only moved
            at = session.missing.get(message)
            if at is not None and chain.last_read > evidence.absences[at].read:
                self._returned(session, message, chain.last_read)
            if message < floor:  # slid out of the window
                self._doubt(chain, message)
                continue
            acknowledged = evidence.turn_done[evidence.message_turn[message]]
            if acknowledged == NEVER or acknowledged >= begun:
                if acknowledged != NEVER:
                    chain.pending.append(message)
                if chain.bit == IN_WHOLE:
                    session.vanished[message] = (evidence.entered[message], chain.last_read)
            elif floor == NEVER or self._comes_after(message, floor):
                if not self.may_be_gone(session, message):
                    since = max(acknowledged, evidence.read_invoked[chain.last_read])
                    self._miss(session, chain, message, read, since, floor)
                elif session.forgets_open:
                    chain.pending.append(message)  # if that forget fails, the message has to come back
            else:
                self._doubt(chain, message)

    def _doubt(self, chain: Chain, message: int) -> None:
        """A window of part of the session says nothing about this message. A read of everything has to."""
        if chain.bit == IN_WHOLE and self.evidence.acknowledged(message) != NEVER:
            chain.pending.append(message)

    def _settle(self, session: SessionEvidence, chain: Chain, read: int, floor: int) -> None:
        """Acknowledged messages that no read has shown since."""
        turns, dones, states, bit = self._turns, self._dones, self._states, chain.bit
        begun = self.evidence.read_invoked[read]
        waiting: View = []
        for message in chain.pending:
            if states[message] & bit:
                continue
            acknowledged = dones[turns[message]]
            if acknowledged >= begun and message >= floor:
                waiting.append(message)
            elif message < floor or (floor != NEVER and not self._comes_after(message, floor)):
                if bit == IN_WHOLE:
                    waiting.append(message)
            elif not self.may_be_gone(session, message):
                self._miss(session, chain, message, read, acknowledged, floor)
            elif session.forgets_open:
                waiting.append(message)
        chain.pending = waiting

    def _comes_after(self, message: int, floor: int) -> bool:
        """Whether real time proves that the message comes after `floor`."""
        evidence = self.evidence
        if evidence.session_of(floor) != evidence.session_of(message):
            return False
        acknowledged = evidence.turn_done[evidence.message_turn[floor]]
        return acknowledged != NEVER and acknowledged < evidence.turn_invoked[evidence.message_turn[message]]

    def _miss(
        self, session: SessionEvidence, chain: Chain, message: int, read: int, since: int, floor: int
    ) -> None:
        if message not in session.missing:
            session.missing[message] = len(self.evidence.absences)
            oldest = next((shown for shown in chain.view if shown >= 0), NEVER)
            self.evidence.absences.append(Absence(message, read, since, floor=floor, oldest=oldest))

    def _regress(self, session: SessionEvidence, read: int) -> None:
        """Whether this process saw one of the vanished, unacknowledged messages in an earlier read."""
        evidence = self.evidence
        before = session.last_read_by.get(evidence.read_process[read], NEVER)
        for message, (first, last) in list(session.vanished.items()):
            acknowledged = evidence.turn_done[evidence.message_turn[message]]
            settled = acknowledged != NEVER and acknowledged < evidence.read_invoked[read]
            if evidence.state[message] & IN_WHOLE or settled:
                del session.vanished[message]
            elif first <= before <= last and not self.may_be_gone(session, message):
                evidence.regressions.append(Regression(message, read, before))

    def _recovered(self, session: SessionEvidence, read: int) -> None:
        """The first read that began after a disturbance: does it have anything older?"""
        turn_invoked, message_turn = self.evidence.turn_invoked, self.evidence.message_turn
        begun = self.evidence.read_invoked[read]
        struck = max((at for at in self.strikes if at < begun), default=NEVER)
        if struck <= session.struck:
            return
        session.struck = struck
        kept = any(m >= 0 and turn_invoked[message_turn[m]] < struck for m in session.whole.view)
        self.evidence.first_reads.append(FirstRead(struck, session.number, read, kept))

    def _judge_gone(self, session: SessionEvidence, chain: Chain, read: int, tail: View) -> None:
        """Check what is visible against the latest acknowledged forget and the end of retention."""
        begun = self.evidence.read_invoked[read]
        if session.purge is not None:
            purge = session.purge
            if begun > purge.done:
                self._find_resurrected(session, read, purge, tail if chain.scanned else chain.view)
                chain.scanned = True
            elif any(0 <= message < purge.below for message in tail):
                chain.scanned = False
        if session.life is not None:
            self._find_overdue(session.life, chain, read)

    def _find_resurrected(self, session: SessionEvidence, read: int, purge: Purge, elements: View) -> None:
        evidence = self.evidence
        for message in elements:
            if not 0 <= message < purge.below or evidence.session_of(message) != session.number:
                continue
            turn = evidence.message_turn[message]
            acknowledged = evidence.turn_done[turn]
            seen_done = evidence.read_done[evidence.seen_at[message]]
            written = NEVER < acknowledged < purge.invoked or seen_done < purge.invoked
            if written and evidence.retries.get(turn, NEVER) < purge.invoked:
                sighting = Sighting(message, session.number, read)
                evidence.resurrected.append((sighting, purge.done))

    def _find_overdue(self, life: Life, chain: Chain, read: int) -> None:
        """Scans the whole view, but only if something may be overdue; sessions with a retention are short."""
        evidence = self.evidence
        if evidence.header.refresh != "message" and not life.surely_before:
            return
        low_s = self.clock.low(self.begun_s, self.ended_s)
        bound_s = evidence.header.clock_bound_s
        for message in chain.view:
            if message < 0:
                continue
            turn = evidence.message_turn[message]
            acknowledged, retention = evidence.turn_done[turn], evidence.retention.get(turn)
            if acknowledged == NEVER or retention is None:
                continue
            if evidence.header.refresh == "message":
                age_s = low_s - self.clock.high(retention.invoked_s, evidence.turn_done_s[turn])
                if age_s > retention.retention_s + bound_s:
                    evidence.overdue.setdefault(message, Overdue(message, read, acknowledged, age_s))
            elif acknowledged < life.surely_before <= evidence.read_invoked[read]:
                overdue = Overdue(message, read, life.renewed, life.age_s(low_s))
                evidence.overdue.setdefault(message, overdue)


def _first_shown(session: SessionEvidence, chain: Chain) -> int:
    """The message from which on a window has to show everything. If it begins with the oldest one, that may be a
    prompt that is always kept, and the next one counts."""
    known = (message for message in chain.view if message >= 0)
    first = next(known, NEVER)
    seen_first = session.whole.view[:1] if session.shows_everything != NEVER else []
    is_oldest = first == session.oldest or (chain is session.window and first in seen_first)
    return next(known, first) if is_oldest else first
