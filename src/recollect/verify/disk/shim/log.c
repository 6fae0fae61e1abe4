/* The log: one file, mapped shared by every process of the engine and by the runner. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct header *shared;
static uint32_t own_pid;
static __thread uint32_t own_tid;
/* One call of this thread, plus calls by signal handlers that interrupt it and each other. */
#define NESTED_MAX 4
static __thread struct flight *own_flights[NESTED_MAX];
static __thread volatile int flying;

/* Field 22 of /proc/PID/stat. The second field, the command in parentheses, may hold anything: skip to its end. */
static uint64_t start_of(int64_t pid)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static void register_process(void)
{
    own_pid = (uint32_t)getpid();
    own_tid = 0;
    memset(own_flights, 0, sizeof own_flights);
    flying = 0;
    uint64_t slot = __atomic_fetch_add(&shared->process_count, 1, __ATOMIC_SEQ_CST) % PROCESSES_MAX;
    struct process *me = &shared->processes[slot];
    __atomic_store_n(&me->start, start_of(own_pid), __ATOMIC_SEQ_CST);
    __atomic_store_n(&me->pid, own_pid, __ATOMIC_SEQ_CST);
}

/* Starts recording in this process. 0, or -1 if the log cannot be used. */
EXPORT int recollect_attach(const char *path, const char *folder)
{
    if (shared || strlen(folder) >= sizeof root)
        return -1;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    struct stat status;
    void *map = MAP_FAILED;
    if (!syscall(SYS_fstat, fd, &status) && status.st_size > HEADER_BYTES)
        map = (void *)syscall(SYS_mmap, NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)0);
    syscall(SYS_close, fd);
    if (map == MAP_FAILED)
        return -1;
    strcpy(root, folder);
    shared = map;
    register_process();
    at_fork_in_child(register_process);
    return 0;
}

/* Without these variables the shim sleeps until recollect_attach is called: a fork server is started with it, and only
 * the children that are to be recorded wake it up. */
__attribute__((constructor)) static void attach_by_environment(void)
{
    const char *path = getenv("RECOLLECT_DISK_LOG"), *folder = getenv("RECOLLECT_DISK_ROOT");
    if (path && folder)
        recollect_attach(path, folder);
}

/* The log is fresh memory, and touching it page by page is the most expensive part of recording: it is prefaulted in
 * larger pieces, by whichever process reaches the end of one. Older kernels cannot do that and pay per page. */
#define PIECE (256 * 1024)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
static void make_ready(struct header *log, uint64_t at, size_t total)
{
    uint64_t next = (at + total + PIECE - 1) / PIECE * PIECE;
    if (at / PIECE != (at + total) / PIECE && next + PIECE <= log->capacity)
        syscall(SYS_madvise, (char *)log + next, (size_t)PIECE, MADV_POPULATE_WRITE);
}

/* Marks come from the runner, which maps the same file itself and holds many logs at once: hence the argument. */
static void append_to(struct header *log, const struct record *fields, const char *path1, const char *path2,
                      const struct iovec *data, int pieces)
{
    size_t len1 = path1 ? strlen(path1) : 0, len2 = path2 ? strlen(path2) : 0, left = fields->data_len;
    size_t total = (sizeof(struct record) + len1 + len2 + left + 7) & ~(size_t)7;
    uint64_t at = __atomic_fetch_add(&log->tail, total, __ATOMIC_SEQ_CST);
    if (at + total > log->capacity)
        return;
    make_ready(log, at, total);
    struct record *record = (struct record *)((char *)log + at);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *record = *fields;
    record->total = (uint32_t)total;
    record->ready = 0;
    record->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    record->pid = own_pid;
    record->tid = own_tid;
    record->path1_len = (uint16_t)len1;
    record->path2_len = (uint16_t)len2;
    char *to = (char *)(record + 1);
    memcpy(to, path1 ? path1 : "", len1);
    to += len1;
    memcpy(to, path2 ? path2 : "", len2);
    to += len2;
    for (int i = 0; i < pieces && left; i++) {
        size_t n = data[i].iov_len < left ? data[i].iov_len : left;
        memcpy(to, data[i].iov_base, n);
        to += n;
        left -= n;
    }
    record->magic = log->magic;
    __atomic_store_n(&record->ready, 1, __ATOMIC_RELEASE);
}

/* The runner cannot see the moment at which a certain file is being rewritten; the process that writes it can. */
static void take_aim(const struct record *fields)
{
    if (!shared->aim_ino || fields->ino != shared->aim_ino || fields->op != OP_WRITE)
        return;
    if (__atomic_sub_fetch(&shared->aim_writes, 1, __ATOMIC_SEQ_CST) > 0)
        return;
    __atomic_store_n(&shared->aim_ino, 0, __ATOMIC_SEQ_CST);
    if (!shared->aim_full)
        halt();
    __atomic_store_n(&shared->space_left, 0, __ATOMIC_SEQ_CST);
}

void append(const struct record *fields, const char *path1, const char *path2, const struct iovec *data, int pieces)
{
    int saved = errno;
    if (!own_tid)
        own_tid = (uint32_t)syscall(SYS_gettid);
    if (fields->ino && fields->op <= OP_ALLOCATE)
        unseen_changed(fields->ino);
    append_to(shared, fields, path1, path2, data, pieces);
    int64_t count = (int64_t)__atomic_add_fetch(&shared->count, 1, __ATOMIC_SEQ_CST);
    if (shared->kill_at > 0 && count >= shared->kill_at)
        halt();
    take_aim(fields);
    errno = saved;
}

EXPORT void recollect_mark(struct header *log, const char *text)
{
    struct record fields = {.op = OP_MARK};
    append_to(log, &fields, text, NULL, NULL, 0);
}

EXPORT int recollect_layout(void) { return LAYOUT_VERSION * 1000000 + (int)sizeof(struct header); }

/* Kills the whole tree. `halted` comes first: a process that is missed here (forked a moment ago) dies at its next
 * recorded call, before it changes anything. */
void halt(void)
{
    __atomic_store_n(&shared->halted, 1, __ATOMIC_SEQ_CST);
    uint64_t used = __atomic_load_n(&shared->process_count, __ATOMIC_SEQ_CST);
    int64_t self = syscall(SYS_getpid);
    for (uint64_t i = 0; i < used && i < PROCESSES_MAX; i++) {
        struct process other = shared->processes[i];
        if (other.pid > 0 && other.pid != self && other.start && start_of(other.pid) == other.start)
            kill((pid_t)other.pid, SIGKILL);
    }
    if (self == 1) /* the first process of a container is not killed by its own signal; the others end with it */
        syscall(SYS_exit_group, 128 + SIGKILL);
    for (;;) /* not own_pid: in a vforked child that is the parent, who may be gone, and its number given away */
        kill((pid_t)syscall(SYS_getpid), SIGKILL);
}

void alive(void)
{
    if (__atomic_load_n(&shared->halted, __ATOMIC_SEQ_CST))
        halt();
}

void depart(enum op op, uint64_t ino)
{
    alive();
    int depth = flying++;
    if (depth >= NESTED_MAX)
        return;
    if (!own_flights[depth])
        own_flights[depth] = &shared->flights[__atomic_fetch_add(&shared->flight_count, 1, __ATOMIC_RELAXED) % FLIGHTS_MAX];
    __atomic_store_n(&own_flights[depth]->ino, ino, __ATOMIC_RELAXED);
    __atomic_store_n(&own_flights[depth]->op, op, __ATOMIC_RELEASE);
}

/* In a child forked in the middle of its parent's call there is nothing to end: the flight is the parent's. */
void arrive(void)
{
    int depth = flying > 0 ? --flying : NESTED_MAX;
    if (depth < NESTED_MAX && own_flights[depth])
        __atomic_store_n(&own_flights[depth]->op, 0, __ATOMIC_RELEASE);
}

/* liburing enters the kernel by itself: what goes through a ring cannot be seen here. Say so instead of guessing. */
static int ring(const char *name, unsigned entries, void *ring_memory, void *last)
{
    if (shared)
        __atomic_fetch_add(&shared->io_uring, 1, __ATOMIC_RELAXED);
    int (*next)(unsigned, void *, void *) = (int (*)(unsigned, void *, void *))dlsym(RTLD_NEXT, name);
    return next ? next(entries, ring_memory, last) : -ENOSYS;
}
EXPORT int io_uring_queue_init_params(unsigned entries, void *memory, void *params)
{
    return ring("io_uring_queue_init_params", entries, memory, params);
}
EXPORT int io_uring_queue_init(unsigned entries, void *memory, unsigned flags)
{
    return ring("io_uring_queue_init", entries, memory, (void *)(uintptr_t)flags);
}
