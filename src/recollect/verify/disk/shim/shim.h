/* The disk recorder: what its parts share.
 *
 * Loaded by LD_PRELOAD into every process of an unmodified engine, the shim wraps the libc calls that change files
 * or make them durable. What they do under one folder (the root) is appended to one redo log, a file mapped by all
 * processes and by the runner. The durability model (model.py) replays that log.
 *
 * Two rules make the log honest:
 *   - a change is logged AFTER the call returned, a sync BEFORE the call starts (and its end after): a write that
 *     races with a sync therefore never counts as durable;
 *   - a record is reserved with one atomic addition and never locked, so it is safe in signal handlers, between
 *     threads, and across fork, and a process killed half-way leaves a gap that the reader can step over.
 *
 * Kernel calls go through syscall(2) with the *at numbers, which x86-64 and aarch64 both have. Its sixth argument is passed
 * on the stack: a plain 0 there leaves half of a 64-bit offset to chance, so it is cast.
 *
 *   shim.h     layout shared with records.py and recorder.py: change both sides, and LAYOUT_VERSION
 *   log.c      the log: attach, append, halt
 *   locks.c    the few locks there are, and why forks and signals do not deadlock on them
 *   track.c    which descriptors and paths lie under the root
 *   unseen.c   files changed behind our back (stdio, shared mappings): snapshots
 *   data.c     open, write, truncate, allocate, copy
 *   names.c    rename, link, unlink, directories
 *   sync.c     fsync and its relatives
 *   stdio.c    FILE streams
 *   memory.c   mmap, msync
 */
#ifndef RECOLLECT_SHIM_H
#define RECOLLECT_SHIM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#undef _FORTIFY_SOURCE /* its inline wrappers would hide the very functions we define */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define LAYOUT_VERSION 3
#define HEADER_BYTES 65536
#define PROCESSES_MAX 1024
#define FLIGHTS_MAX 256
#define UNSEEN_MAX 1024
#define PAGE 4096

#ifndef __GLIBC__
typedef off_t off64_t; /* musl's offsets have 64 bits anyway */
#endif

#define EXPORT __attribute__((visibility("default")))

/* The real function of that name, which ours wraps; looked up once per place of use. */
#define NEXT(like, name)                                                                                               \
    ({                                                                                                                 \
        static __typeof__(&like) found;                                                                                \
        __typeof__(&like) next = __atomic_load_n(&found, __ATOMIC_RELAXED);                                            \
        if (!next) {                                                                                                   \
            next = (__typeof__(&like))dlsym(RTLD_NEXT, name);                                                          \
            __atomic_store_n(&found, next, __ATOMIC_RELAXED);                                                          \
        }                                                                                                              \
        next;                                                                                                          \
    })

enum op {
    OP_CREATE = 1, /* path1, ino; an empty path1 is a file without a name (O_TMPFILE) */
    OP_WRITE,      /* ino, offset, data */
    OP_TRUNCATE,   /* ino, length */
    OP_ALLOCATE,   /* ino, offset, length; flags: the mode of fallocate(2) */
    OP_SYNC,       /* ino, offset+length (0: whole file); flags: FLAG_DATA_ONLY, FLAG_EVERYTHING */
    OP_SYNC_END,   /* the same thread's OP_SYNC returned; offset: 0 or errno */
    OP_RENAME,     /* path1 to path2; flags: FLAG_EXCHANGE */
    OP_UNLINK,     /* path1 */
    OP_MKDIR,      /* path1, ino */
    OP_RMDIR,      /* path1 */
    OP_LINK,       /* path1 is a new name of ino */
    OP_SYMLINK,    /* path1 points to path2 */
    OP_CLOSE,      /* a descriptor of ino that could write was closed */
    OP_MARK,       /* path1: text from the runner, such as an acknowledgement */
};

enum { /* flags of a record */
    FLAG_SYNCED = 1,     /* OP_WRITE: durable when it returned (O_SYNC, O_DSYNC, RWF_SYNC) */
    FLAG_SNAPSHOT = 2,   /* OP_WRITE: read back from the file; never makes it longer */
    FLAG_DATA_ONLY = 4,  /* OP_SYNC: fdatasync, msync */
    FLAG_EVERYTHING = 8, /* OP_SYNC: sync, syncfs */
    FLAG_EXCHANGE = 16,  /* OP_RENAME: the two names change places */
};

struct record {
    uint64_t magic; /* the log's own random number: lets the reader find the next record after a gap */
    uint32_t total; /* bytes of this record, header included, a multiple of 8 */
    uint32_t ready; /* set last */
    uint64_t time_ns;
    uint32_t pid, tid;
    uint16_t op, flags, path1_len, path2_len;
    uint64_t ino;
    int64_t offset;
    uint64_t length;
    uint64_t data_len;
};

struct process {
    int64_t pid;
    uint64_t start; /* clock ticks since boot: a recycled pid has another one, and is not ours to kill */
};

/* A change whose call has begun and whose record is not written yet. Left over by a process that was killed in
 * between; the self-check then does not blame the recorder for the difference. */
struct flight {
    uint64_t op;
    uint64_t ino;
};

struct header {
    uint64_t magic;
    uint64_t capacity;
    uint64_t tail;  /* next free byte; beyond capacity the log is full and the reader refuses it */
    uint64_t count; /* records of the engine (marks excluded) */
    /* Injections, set by the runner while the engine runs. */
    int64_t kill_at;          /* SIGKILL of the whole tree once count reaches this; 0: never */
    int64_t torn_percent;     /* how much of the write that becomes record kill_at is done; -1: all of it */
    int64_t sync_delay_us;    /* added to every sync */
    int64_t sync_errno;       /* 0: syncs work */
    int64_t sync_error_after; /* this many syncs still work */
    int64_t space_left;       /* bytes by which files may still grow; -1: no limit */
    int64_t skip_sync;        /* 1: the real sync is left out (recording is faster; the model does not need it) */
    uint64_t aim_ino;         /* a file to wait for; 0: none */
    int64_t aim_writes;       /* after this many writes to that file... */
    int64_t aim_full;         /* ...1: the disk is full; 0: SIGKILL of the whole tree */
    /* State of the engine's tree. */
    uint64_t halted; /* kill_at was reached: whoever calls next dies before it changes anything */
    uint64_t io_uring; /* how often an io_uring was set up: writes through it are invisible */
    uint64_t process_count;
    uint64_t flight_count;
    struct flight flights[FLIGHTS_MAX];
    uint64_t unseen[UNSEEN_MAX]; /* inodes that libc or a mapping may change without a call; 0 free, 1 removed */
    struct process processes[PROCESSES_MAX];
    uint64_t changes[UNSEEN_MAX]; /* how many records there are of the inode in the same slot of `unseen` */
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "the log's first record begins at HEADER_BYTES");

/* log.c */
extern struct header *shared; /* NULL: this process is not recorded */
void append(const struct record *fields, const char *path1, const char *path2, const struct iovec *data, int pieces);
void alive(void); /* returns unless the tree was halted */
void halt(void) __attribute__((noreturn));
void depart(enum op op, uint64_t ino);
void arrive(void);

/* locks.c */
enum lock { LOCK_MAPPINGS, LOCK_SUMS, LOCKS };
sigset_t hold(enum lock lock); /* blocks all signals; returns the mask to restore */
void let_go(enum lock lock, sigset_t before);
void at_fork_in_child(void (*begin)(void));

/* track.c */
struct file {
    enum { OUTSIDE, REGULAR, DIRECTORY } kind;
    uint64_t ino;
    int64_t size;
    int synced;   /* opened with O_SYNC or O_DSYNC */
    int appended; /* opened with O_APPEND */
    int writable;
};
extern char root[PATH_MAX];
int track(int fd, struct file *file);
void forget(int fd); /* this number now means another file */
int locate(int dirfd, const char *path, char *relative);
int reopen(int fd); /* a readable descriptor of the same file, or -1 */

/* unseen.c */
void unseen_add(uint64_t ino);
void unseen_remove(uint64_t ino);
int unseen_has(uint64_t ino);
void unseen_changed(uint64_t ino);
void forget_all_sums(void);
void snapshot(int fd, uint64_t ino);
void snapshot_memory(uint64_t ino, int64_t offset, char *memory, size_t length);
void snapshot_new(int fd, const char *path);

/* data.c */
int open_recorded(int dirfd, const char *path, int flags, mode_t mode);
void log_close(const struct file *file);
int refuse_growth(int64_t bytes); /* 1 and ENOSPC when the injected disk is full */

/* sync.c */
struct record sync_of(uint64_t ino, uint16_t flags);
int sync_begin(const struct record *fields); /* 0, or the errno that the call is to fail with */
void sync_end(const struct record *fields, int error);

#endif
