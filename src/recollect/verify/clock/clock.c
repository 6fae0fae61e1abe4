/* A wall clock that can be moved and stopped, preloaded into a target or an engine.
 *
 * The control file is mapped, so a change is seen at the next call, in every process that has it, with no signal and
 * no restart. Only CLOCK_REALTIME is changed. The monotonic clocks, which timeouts and event loops use, go on as they
 * are: on a real machine, too, setting the clock leaves them alone.
 *
 * Not covered: file times, which the kernel stamps; absolute deadlines on CLOCK_REALTIME that are handed to the kernel
 * (sem_timedwait and the like); programs that make system calls without libc.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define SECOND_NS INT64_C(1000000000)
#define LAYOUT 1

struct control {
    _Atomic int64_t offset_ns; /* added to the real clock */
    _Atomic int64_t frozen_ns; /* what the clock shows while it stands still; 0 while it runs */
};

static const struct control untouched;
static const struct control *_Atomic control = &untouched;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

EXPORT int recollect_clock_layout(void)
{
    return LAYOUT;
}

/* From now on this process obeys the control file at `path`. 0, or -1 with errno. */
EXPORT int recollect_clock_use(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return -1;
    atomic_store(&control, mapped); /* the old mapping stays: another thread may be reading it */
    return 0;
}

static void find_real(void)
{
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

__attribute__((constructor)) static void begin(void)
{
    find_real();
    const char *path = getenv("RECOLLECT_CLOCK");
    if (path && *path)
        recollect_clock_use(path); /* no error here: the fault asks the engine whether its clock moved */
}

/* Before our constructor has run, other libraries' constructors may already ask for the time. */
static int real_time(clockid_t id, struct timespec *now)
{
    return real_clock_gettime ? real_clock_gettime(id, now) : (int)syscall(SYS_clock_gettime, id, now);
}

EXPORT int clock_gettime(clockid_t id, struct timespec *now)
{
    int status = real_time(id, now);
    if (status || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
        return status;
    const struct control *wanted = atomic_load(&control);
    int64_t shown = atomic_load(&wanted->frozen_ns);
    if (!shown)
        shown = now->tv_sec * SECOND_NS + now->tv_nsec + atomic_load(&wanted->offset_ns);
    now->tv_sec = shown / SECOND_NS;
    now->tv_nsec = shown % SECOND_NS;
    return 0;
}

EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    if (zone)
        *(struct timezone *)zone = (struct timezone){0};
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

EXPORT time_t time(time_t *now)
{
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &precise))
        return (time_t)-1;
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}

EXPORT int timespec_get(struct timespec *now, int base)
{
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0;
}
