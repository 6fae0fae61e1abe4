"""Folding reads into the evidence, at a cost that grows with what changed since the read before.

A read is stored as a difference, so only the elements that left or entered the view are looked at. That is
enough to know, for every acknowledged message, the first read that should have had it and did not:

- a message that leaves the view is missing if it was acknowledged before this read began;
- a message that is acknowledged while not in the view waits in `pending` until a read that began later either
  shows it or proves it missing;
- a missing message that enters a view again was not lost, only late.

Reads may overlap: one that began before an acknowledgement may end after it. Such a read proves nothing about
that message, which goes back to `pending`.
"""

from __future__ import annotations

from recollect.verify.evidence import (
    DROPPED,
    IN_WHOLE,
    IN_WINDOW,
    NEVER,
    SEEN,
    Absence,
    Disagreement,
    Evidence,
    Hidden,
    Inversion,
    Overdue,
    Recovery,
    Regression,
    Sighting,
)
from recollect.verify.op import Ask, Seen
from recollect.verify.retention import EngineClock
from recollect.verify.sessions import Chain, Purge, Session
from recollect.verify.views import View

STRANGE = -1


class ReadFolder:
    """Applies one read after another; see the module's docstring."""

    def __init__(self, evidence: Evidence, clock: EngineClock) -> None:
        self.evidence = evidence
        self.clock = clock
        self.begun_s = 0.0  # when the read that is being folded was invoked, and when it completed
        self.ended_s = 0.0

    def fold_whole(self, session: Session, read: int, seen: Seen, struck: int) -> None:
        """A read that had to return everything; `struck` is the latest disturbance before it began."""
        chain = session.whole
        removed = self._cut(chain, seen) if seen.skip or seen.keep != len(chain.view) else None
        tail = self.evidence.odds.decode_tail(seen) if seen.tail else []
        if tail:
            self._extend(session, chain, read, tail)
        if removed:
            self._leave(session, chain, read, removed, NEVER)
        if chain.pending:
            self._settle(session, chain, read, NEVER)
        if session.purge is not None or session.life is not None:
            self._judge_gone(session, chain, read, tail)
        if session.vanished:
            self._regress(session, read)
        if struck > session.struck:
            session.struck = struck
            self._recovered(session, read, struck)
        chain.last_read = read
        session.last_read_by[self.evidence.read_process[read]] = read

    def fold_window(self, session: Session, read: int, seen: Seen, ask: Ask) -> None:
        """A `last` or `after` read: it must have what comes provably after its first element or cursor."""
        chain = session.window or self._open_window(session)
        removed = self._cut(chain, seen)
        tail = self.evidence.odds.decode_tail(seen) if seen.tail else []
        if tail:
            self._extend(session, chain, read, tail)
        floor = ask.after if ask.after is not None else next((m for m in chain.view if m >= 0), NEVER)
        if floor != NEVER and floor < len(self.evidence.message_turn):
            if removed:
                self._leave(session, chain, read, removed, floor)
            if chain.pending:
                self._settle(session, chain, read, floor)
        self._judge_gone(session, chain, read, tail)
        chain.last_read = read

    def _open_window(self, session: Session) -> Chain:
        """The first window of a session has to show what the whole reads and acknowledgements promise."""
        session.window = chain = Chain(IN_WINDOW)
        turn_done, message_turn = self.evidence.turn_done, self.evidence.message_turn
        shown = [m for m in session.whole.view if m >= 0 and turn_done[message_turn[m]] != NEVER]
        chain.pending = shown + session.whole.pending
        return chain

    def finish(self, session: Session) -> None:
        """The history is over: a missing message that the latest view has was only late."""
        absences, state = self.evidence.absences, self.evidence.state
        for message, place in session.missing.items():
            for chain in (session.whole, session.window):
                if (
                    chain is not None
                    and state[message] & chain.bit
                    and chain.last_read > absences[place].read
                ):
                    absences[place] = absences[place]._replace(back=chain.last_read)
                    break
        self.evidence.unchecked += sum(message not in session.missing for message in session.whole.pending)
        self.evidence.last_whole_read[session.number] = session.whole.last_read
        self.evidence.last_ok_read[session.number] = session.last_ok_read
        maybe_before = session.life.maybe_before if session.life is not None else NEVER
        self.evidence.gone_before[session.number] = max(session.forget_floor, maybe_before)

    def may_be_gone(self, session: Session, message: int) -> bool:
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

    def hold_against_count(self, session: Session, rows: int, invoked: int, done: int) -> None:
        """Missing messages are only hidden if the engine, asked directly later, in the same state, has the rows."""
        read = session.whole.last_read
        if read == NEVER or session.mutations_open:
            return
        begun = self.evidence.read_invoked[read]
        if invoked < begun or session.last_mutation > begun:
            return
        surplus = rows - self.evidence.read_size[read] - session.unknown_messages
        for message in list(session.missing)[: max(0, surplus)]:
            self.evidence.hidden.setdefault(message, Hidden(message, read, done, rows))

    def _cut(self, chain: Chain, seen: Seen) -> View:
        """Reduce the view to what the read kept of it; returns the messages that left."""
        view, peaks = chain.view, chain.peaks
        end = seen.skip + seen.keep
        if end > len(view) or seen.skip < 0 or seen.keep < 0:
            raise ValueError(f"keeps {seen.skip}..{end} of a view of {len(view)} elements")
        if end == len(view) and not seen.skip:
            return []
        if not seen.keep:
            removed = view[:]
            view.clear()
            peaks.clear()
        else:
            removed = view[: seen.skip] + view[end:]
            del view[end:], peaks[end:]
            del view[: seen.skip], peaks[: seen.skip]
        removed = [message for message in removed if message >= 0]
        state, mask = self.evidence.state, ~chain.bit
        for message in removed:
            state[message] &= mask
        if chain.doubled:
            chain.doubled = {message for message in chain.doubled if message in view}
            for message in chain.doubled:
                state[message] |= chain.bit
        return removed

    def _extend(self, session: Session, chain: Chain, read: int, tail: View) -> None:
        """Take the new elements into the view, noting those that are strange, doubled or out of order."""
        evidence = self.evidence
        message_turn, turn_session, state = evidence.message_turn, evidence.turn_session, evidence.state
        view, peaks, bit, missing = chain.view, chain.peaks, chain.bit, session.missing
        known, number = len(message_turn), session.number
        peak = peaks[-1] if peaks else NEVER
        before = next((m for m in reversed(view) if m >= 0), NEVER)
        fresh: View = []
        for message in tail:
            if message < 0 or message >= known or turn_session[message_turn[message]] != number:
                self.strange(session, read, message)
                view.append(STRANGE)
                peaks.append(peak)
                continue
            bits = state[message]
            if bits & bit:
                self._doubled(session, chain, read, message)
            else:
                state[message] = bits | bit | SEEN
                if bits & SEEN:
                    before = self._ordered(session, read, before, fresh, message)
                    if bit == IN_WHOLE:
                        session.entered[message] = read
                else:
                    evidence.seen_at[message] = read
                    fresh.append(message)
                if missing and message in missing:
                    self._returned(session, message, read)
                if message < peak:
                    self._overtaken(chain, read, message, peak)
            if message > peak:
                peak = message
            view.append(message)
            peaks.append(peak)
        rank, top = evidence.rank, session.top_rank
        for message in fresh:
            top += 1.0
            rank[message] = top
        session.top_rank = top

    def _ordered(self, session: Session, read: int, before: int, fresh: View, message: int) -> int:
        """Hold a message seen earlier against the order of earlier reads; returns the last one in order.

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
        for place, newcomer in enumerate(fresh, 1):
            rank[newcomer] = low + place * step
        fresh.clear()
        return message

    def _overtaken(self, chain: Chain, read: int, message: int, peak: int) -> None:
        """`peak`, invoked later, precedes `message`: wrong if the two did not overlap, or are one turn."""
        evidence = self.evidence
        turn = evidence.message_turn[message]
        if not evidence.state[peak] & chain.bit:  # slid out of the window: look at what is really there
            peak = max((m for m in chain.view if m >= 0), default=NEVER)
            if peak < message:
                return
        done = evidence.turn_done[turn]
        later = NEVER
        if done != NEVER and done < evidence.turn_invoked[evidence.message_turn[peak]]:
            later = peak
        same = [m for m in evidence.turn_messages(turn) if m > message and evidence.state[m] & chain.bit]
        if later != NEVER or same:
            inversion = Inversion(message, same[0] if same else later, read, bool(same))
            evidence.inversions.setdefault(message, inversion)

    def strange(self, session: Session, read: int, element: int) -> None:
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

    def _doubled(self, session: Session, chain: Chain, read: int, message: int) -> None:
        chain.doubled.add(message)
        self.evidence.repeated.append(Sighting(message, session.number, read))

    def _returned(self, session: Session, message: int, read: int) -> None:
        place = session.missing.pop(message)
        self.evidence.absences[place] = self.evidence.absences[place]._replace(back=read)

    def _leave(self, session: Session, chain: Chain, read: int, removed: View, floor: int) -> None:
        """Messages that the view had before, and has no more."""
        evidence = self.evidence
        begun = evidence.read_invoked[read]
        for message in removed:
            if evidence.state[message] & chain.bit:
                continue  # it only moved
            place = session.missing.get(message)
            if place is not None and chain.last_read > evidence.absences[place].read:
                self._returned(session, message, chain.last_read)
            acknowledged = evidence.turn_done[evidence.message_turn[message]]
            if acknowledged == NEVER or acknowledged >= begun:
                if acknowledged != NEVER:
                    chain.pending.append(message)
                if chain.bit == IN_WHOLE:
                    since = session.entered.get(message, evidence.seen_at[message])
                    session.vanished[message] = (since, chain.last_read)
            elif floor == NEVER or self._comes_after(message, floor):
                if not self.may_be_gone(session, message):
                    since = max(acknowledged, evidence.read_invoked[chain.last_read])
                    self._miss(session, message, read, since, floor)
                elif session.forgets_open:
                    chain.pending.append(message)  # should that forget fail, the message has to come back
                elif chain.bit == IN_WHOLE and acknowledged > session.forget_done:
                    evidence.forgotten += 1
                    session.live -= 1

    def _settle(self, session: Session, chain: Chain, read: int, floor: int) -> None:
        """Acknowledged messages that no read has shown since."""
        evidence = self.evidence
        message_turn, turn_done, state, bit = (
            evidence.message_turn,
            evidence.turn_done,
            evidence.state,
            chain.bit,
        )
        begun = evidence.read_invoked[read]
        waiting: View = []
        for message in chain.pending:
            if state[message] & bit:
                continue
            acknowledged = turn_done[message_turn[message]]
            if acknowledged >= begun:
                waiting.append(message)
            elif floor != NEVER and not self._comes_after(message, floor):
                continue
            elif not self.may_be_gone(session, message):
                self._miss(session, message, read, acknowledged, floor)
            elif session.forgets_open:
                waiting.append(message)
            elif bit == IN_WHOLE:
                evidence.forgotten += 1
                session.live -= 1
        chain.pending = waiting

    def _comes_after(self, message: int, floor: int) -> bool:
        """Whether real time proves that the message belongs behind `floor`."""
        evidence = self.evidence
        if evidence.session_of(floor) != evidence.session_of(message):
            return False
        acknowledged = evidence.turn_done[evidence.message_turn[floor]]
        return acknowledged != NEVER and acknowledged < evidence.turn_invoked[evidence.message_turn[message]]

    def _miss(self, session: Session, message: int, read: int, since: int, floor: int) -> None:
        if message not in session.missing:
            session.missing[message] = len(self.evidence.absences)
            self.evidence.absences.append(Absence(message, read, since, floor=floor))

    def _regress(self, session: Session, read: int) -> None:
        """Whether this process saw one of the vanished, never acknowledged messages in an earlier read."""
        evidence = self.evidence
        before = session.last_read_by.get(evidence.read_process[read], NEVER)
        for message, (first, last) in list(session.vanished.items()):
            acknowledged = evidence.turn_done[evidence.message_turn[message]]
            settled = acknowledged != NEVER and acknowledged < evidence.read_invoked[read]
            if evidence.state[message] & IN_WHOLE or settled:
                del session.vanished[message]
            elif first <= before <= last and not self.may_be_gone(session, message):
                evidence.regressions.append(Regression(message, read, before))

    def _recovered(self, session: Session, read: int, struck: int) -> None:
        turn_invoked, message_turn = self.evidence.turn_invoked, self.evidence.message_turn
        kept = any(m >= 0 and turn_invoked[message_turn[m]] < struck for m in session.whole.view)
        self.evidence.recoveries.append(Recovery(struck, session.number, read, kept))

    def _judge_gone(self, session: Session, chain: Chain, read: int, tail: View) -> None:
        """Hold what is visible against the latest acknowledged forget and against the end of retention."""
        begun = self.evidence.read_invoked[read]
        if session.purge is not None:
            purge = session.purge
            if begun > purge.done:
                self._find_resurrected(session, read, purge, tail if chain.scanned else chain.view)
                chain.scanned = True
            elif any(0 <= message < purge.below for message in tail):
                chain.scanned = False
        if session.life is not None:
            self._find_overdue(session, chain, read)

    def _find_resurrected(self, session: Session, read: int, purge: Purge, elements: View) -> None:
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

    def _find_overdue(self, session: Session, chain: Chain, read: int) -> None:
        """Scans the view, but only where something may be overdue: sessions with a retention are short."""
        evidence, life = self.evidence, session.life
        if life is None or (evidence.header.refresh != "message" and not life.surely_before):
            return
        low_s = self.clock.low(self.begun_s, self.ended_s)
        bound_s = evidence.header.clock_bound_s
        for message in chain.view:
            if message < 0:
                continue
            turn = evidence.message_turn[message]
            acknowledged, retention = evidence.turn_done[turn], evidence.retention.get(turn)
            if acknowledged == NEVER or retention is None or acknowledged > evidence.read_invoked[read]:
                continue
            if evidence.header.refresh == "message":
                age_s = low_s - self.clock.high(retention.invoked_s, evidence.turn_done_s[turn])
                if age_s > retention.retention_s + bound_s:
                    evidence.overdue.setdefault(message, Overdue(message, read, acknowledged, age_s))
            elif acknowledged < life.surely_before <= evidence.read_invoked[read]:
                overdue = Overdue(message, read, life.renewed, life.age_s(low_s))
                evidence.overdue.setdefault(message, overdue)
