/* Files that change without a call we could wrap: FILE streams write from inside libc, mappings by storing to memory.
 *
 * Their inodes are listed in the log's header, for all processes. Before such a file is synced (and when a stream is
 * flushed or closed) its content is read back and the pages that changed are logged as writes. What such a file holds
 * between two snapshots is unknown, but it was never synced either: the runner takes it from the folder at the end.
 */
#include "shim.h"

#include <string.h>
#include <sys/mman.h>

enum { FREE = 0, REMOVED = 1 };

static uint64_t *slot_of(uint64_t ino)
{
    for (uint64_t i = 0; i < UNSEEN_MAX; i++) {
        uint64_t *slot = &shared->unseen[(ino + i) % UNSEEN_MAX];
        uint64_t value = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
        if (value == ino)
            return slot;
        if (value == FREE)
            return NULL;
    }
    return NULL;
}

int unseen_has(uint64_t ino) { return slot_of(ino) != NULL; }

void unseen_add(uint64_t ino)
{
    if (slot_of(ino))
        return;
    for (uint64_t i = 0; i < UNSEEN_MAX; i++) {
        uint64_t *slot = &shared->unseen[(ino + i) % UNSEEN_MAX], found = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
        if (found != FREE && found != REMOVED && found != ino)
            continue;
        if (found == ino || __atomic_compare_exchange_n(slot, &found, ino, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) || found == ino)
            return;
    }
}

/* What the log says about such a file has changed: a process that has sums of its pages must read it again. */
void unseen_changed(uint64_t ino)
{
    uint64_t *slot = slot_of(ino);
    if (slot)
        __atomic_fetch_add(&shared->changes[slot - shared->unseen], 1, __ATOMIC_SEQ_CST);
}

void unseen_remove(uint64_t ino)
{
    unseen_changed(ino);
    uint64_t *slot = slot_of(ino);
    if (slot)
        __atomic_store_n(slot, REMOVED, __ATOMIC_RELEASE);
}

/* One checksum per page of recently snapshotted files, so that a second snapshot logs only what changed. The sums are
 * those of the log's last records of these pages, and valid only until somebody, in any process, adds another.
 * Losing an entry costs log space, nothing else; therefore a handful is enough and the table is per process. */
#define KEPT 16
static struct kept {
    uint64_t ino;
    uint64_t *slot;
    uint64_t changes; /* that slot's count when all sums were valid */
    int64_t size;
    size_t pages;
    uint64_t *sums; /* 0: not known */
} kept[KEPT];
static unsigned kept_next;

static int grow(struct kept *entry, size_t pages)
{
    size_t wanted = 2 * pages + 64;
    uint64_t *grown = (uint64_t *)syscall(SYS_mmap, NULL, wanted * sizeof *grown, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, (off_t)0);
    if (grown == MAP_FAILED)
        return 0;
    if (entry->sums) {
        memcpy(grown, entry->sums, entry->pages * sizeof *grown);
        syscall(SYS_munmap, entry->sums, entry->pages * sizeof *grown);
    }
    entry->sums = grown;
    entry->pages = wanted;
    return 1;
}

static void forget_sums(struct kept *entry, size_t from)
{
    if (from < entry->pages)
        memset(entry->sums + from, 0, (entry->pages - from) * sizeof *entry->sums);
}

/* In a forked child: another thread may have been changing them. */
void forget_all_sums(void) { memset(kept, 0, sizeof kept); }

static struct kept *sums_of(uint64_t ino, size_t pages)
{
    struct kept *entry = NULL;
    uint64_t *slot = slot_of(ino);
    if (!slot)
        return NULL;
    for (int i = 0; i < KEPT && !entry; i++)
        if (kept[i].ino == ino)
            entry = &kept[i];
    if (!entry)
        entry = &kept[kept_next++ % KEPT];
    if (entry->pages < pages && !grow(entry, pages))
        return NULL;
    uint64_t changes = __atomic_load_n(&shared->changes[slot - shared->unseen], __ATOMIC_SEQ_CST);
    if (entry->ino != ino || entry->slot != slot || entry->changes != changes)
        forget_sums(entry, 0);
    entry->ino = ino;
    entry->slot = slot;
    entry->changes = changes;
    return entry;
}

/* A record of our own leaves the sums valid. */
static void append_snapshot(struct kept *entry, const struct record *fields, const struct iovec *piece)
{
    append(fields, NULL, NULL, piece, piece != NULL);
    if (entry)
        entry->changes++;
}

static uint64_t sum_of(const char *bytes, size_t n)
{
    uint64_t sum = 1469598103934665603u ^ n, word;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&word, bytes + i, 8);
        sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
        sum ^= sum >> 32;
    }
    for (; i < n; i++)
        sum = (sum ^ (unsigned char)bytes[i]) * 1099511628211u;
    return sum ? sum : 1;
}

static void log_if_changed(struct kept *entry, uint64_t ino, int64_t at, char *bytes, size_t n)
{
    uint64_t sum = sum_of(bytes, n), *known = entry ? &entry->sums[at / PAGE] : NULL;
    if (known && *known == sum)
        return;
    if (known)
        *known = sum;
    struct iovec piece = {bytes, n};
    struct record fields = {.op = OP_WRITE, .flags = FLAG_SNAPSHOT, .ino = ino, .offset = at, .length = n, .data_len = n};
    append_snapshot(entry, &fields, &piece);
}

static void copy_changes(int fd, uint64_t ino, int64_t size)
{
    char bytes[PAGE];
    struct record length = {.op = OP_TRUNCATE, .flags = FLAG_SNAPSHOT, .ino = ino, .length = (uint64_t)size};
    struct kept *entry = sums_of(ino, (size_t)(size + PAGE - 1) / PAGE);
    append_snapshot(entry, &length, NULL);
    if (entry && size < entry->size)
        forget_sums(entry, (size_t)(size / PAGE));
    if (entry)
        entry->size = size;
    int64_t at = 0;
    /* Holes are skipped: a torn index file can claim terabytes and hold kilobytes. */
    while (at < size && (at = syscall(SYS_lseek, fd, at, SEEK_DATA)) >= 0 && at < size) {
        int64_t end = syscall(SYS_lseek, fd, at, SEEK_HOLE);
        for (at -= at % PAGE; at < end && at < size; at += PAGE) {
            ssize_t n = syscall(SYS_pread64, fd, bytes, size - at < PAGE ? size - at : PAGE, at);
            if (n <= 0)
                return;
            log_if_changed(entry, ino, at, bytes, (size_t)n);
        }
    }
}

/* A second descriptor is opened because ours may be write-only and its offset is not ours to move. (Closing it drops
 * the process's fcntl locks on the file; engines do not lock files that they write through streams or mappings of
 * whole data files. SQLite does lock its -shm file, and never syncs it.) */
void snapshot(int fd, uint64_t ino)
{
    struct stat status;
    int saved = errno, reader = reopen(fd);
    if (reader >= 0) {
        sigset_t before = hold(LOCK_SUMS);
        if (!syscall(SYS_fstat, reader, &status))
            copy_changes(reader, ino, status.st_size);
        let_go(LOCK_SUMS, before);
        syscall(SYS_close, reader);
    }
    errno = saved;
}

/* The same for part of a mapping, whose descriptor may be closed by now. Memory beyond the end of the file cannot
 * be read; process_vm_readv says so, where a plain load would be SIGBUS. */
void snapshot_memory(uint64_t ino, int64_t offset, char *memory, size_t length)
{
    char bytes[PAGE];
    int saved = errno;
    pid_t self = getpid();
    sigset_t before = hold(LOCK_SUMS);
    struct kept *entry = sums_of(ino, ((size_t)offset + length) / PAGE + 1);
    for (size_t at = 0; at < length; at += PAGE) {
        struct iovec to = {bytes, length - at < PAGE ? length - at : PAGE}, from = {memory + at, to.iov_len};
        ssize_t n = syscall(SYS_process_vm_readv, self, &to, 1, &from, 1, 0);
        if (n <= 0)
            break;
        log_if_changed(entry, ino, offset + (int64_t)at, bytes, (size_t)n);
    }
    let_go(LOCK_SUMS, before);
    errno = saved;
}

/* A file moved into the root from elsewhere: all of its content is logged. */
void snapshot_new(int fd, const char *path)
{
    struct stat status;
    if (syscall(SYS_fstat, fd, &status) || !S_ISREG(status.st_mode))
        return;
    struct record created = {.op = OP_CREATE, .ino = status.st_ino, .length = status.st_mode & 07777};
    append(&created, path, NULL, NULL, 0);
    snapshot(fd, status.st_ino);
}
