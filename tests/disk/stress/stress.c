/* Everything at once that a recorder's locks must survive: threads that write, map and stream, while the process forks,
 * vforks, spawns, and is interrupted by signals whose handlers make recorded calls themselves.
 *
 *   stress fork|signal|vfork|spawn|exit CHILDREN THREADS       in the recorded folder
 *   stress clock CHILDREN THREADS                              with a clock that can be moved
 *
 * Prints "CHILDREN ended, HUNG hung". A child has DEADLINE_S for what takes it a millisecond; one that is still there
 * then hangs, and is killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_S 10
#define LENGTH (4 * 4096)

extern char **environ;
static atomic_int ending;
static pid_t self; /* of the whole program, in file names: spawned ones work in the same folder */

static void must(int good, const char *what)
{
    if (good)
        return;
    perror(what);
    _exit(3);
}

static void map_and_sync(const char *name, int round)
{
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    must(fd >= 0, "open");
    must(!ftruncate(fd, LENGTH), "ftruncate");
    char *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(memory != MAP_FAILED, "mmap");
    close(fd);
    memset(memory + round % 4 * 4096, round, 100);
    must(!msync(memory, LENGTH, MS_SYNC), "msync");
    must(!mprotect(memory, 4096, PROT_READ | PROT_WRITE), "mprotect");
    must(!munmap(memory, LENGTH), "munmap");
}

static void stream(const char *name, int round)
{
    FILE *file = fopen(name, round % 2 ? "w" : "a");
    must(file != NULL, "fopen");
    fprintf(file, "round %d\n", round);
    must(!fflush(file), "fflush");
    must(!fsync(fileno(file)), "fsync");
    must(!fclose(file), "fclose");
}

static void write_and_rename(const char *name, const char *other, int round)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
    must(fd >= 0, "open");
    must(write(fd, &round, sizeof round) == sizeof round, "write");
    must(!fdatasync(fd), "fdatasync");
    close(fd);
    must(!rename(name, other), "rename");
    if (round % 3 == 0)
        must(!unlink(other), "unlink");
}

static void all_calls(int who, int round)
{
    char mapped[40], streamed[40], written[40], renamed[40];
    snprintf(mapped, sizeof mapped, "mapped-%d-%d", (int)self, who);
    snprintf(streamed, sizeof streamed, "streamed-%d-%d", (int)self, who);
    snprintf(written, sizeof written, "written-%d-%d", (int)self, who);
    snprintf(renamed, sizeof renamed, "renamed-%d-%d", (int)self, who);
    map_and_sync(mapped, round);
    stream(streamed, round);
    write_and_rename(written, renamed, round);
    for (int i = 0; i < 50; i++) {
        void *plain = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(plain != MAP_FAILED && !munmap(plain, LENGTH), "mmap without a file");
    }
}

static int clocks_only;

/* All of them tell the same wall clock, which the runner moves by hours and not by less. */
static void ask_all_clocks(void)
{
    struct timespec precise, coarse, standard;
    struct timeval old;
    must(!clock_gettime(CLOCK_REALTIME, &precise) && !clock_gettime(CLOCK_MONOTONIC, &coarse), "clock_gettime");
    must(!clock_gettime(CLOCK_REALTIME_COARSE, &coarse) && !gettimeofday(&old, NULL), "gettimeofday");
    must(time(NULL) > 0 && timespec_get(&standard, TIME_UTC) == TIME_UTC, "time");
    must(precise.tv_nsec >= 0 && precise.tv_nsec < 1000000000 && old.tv_usec >= 0 && old.tv_usec < 1000000, "a fraction of a second");
}

static void *work(void *number)
{
    for (int round = 0; !atomic_load(&ending); round++)
        clocks_only ? ask_all_clocks() : all_calls((int)(long)number, round);
    return NULL;
}

/* ---- signals: the handler may interrupt any recorded call, and makes some itself ---- */

static int watched = -1; /* written by a mapping, so that its fsync takes a snapshot */
static char *watched_memory;
static atomic_int handled;

/* One at a time: a handler that takes longer than the time to the next signal would leave none for the work. */
static void interrupt_soon(void)
{
    struct itimerval once = {.it_value = {0, 500}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void handle(int number)
{
    int saved = errno;
    (void)number;
    __atomic_fetch_add(watched_memory, 1, __ATOMIC_RELAXED);
    must(!fsync(watched), "fsync in a handler");
    void *plain = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(plain != MAP_FAILED && !munmap(plain, 4096), "munmap in a handler");
    must(write(watched, "x", 1) == 1 && lseek(watched, 0, SEEK_SET) == 0, "write in a handler");
    atomic_fetch_add(&handled, 1);
    interrupt_soon();
    errno = saved;
}

static void begin_interrupting(void)
{
    watched = open("watched", O_RDWR | O_CREAT, 0600);
    must(watched >= 0 && !ftruncate(watched, LENGTH), "open");
    watched_memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, watched, 0);
    must(watched_memory != MAP_FAILED, "mmap");
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    interrupt_soon();
}

/* ---- children ---- */

static pid_t forked(int number)
{
    pid_t child = fork();
    if (child)
        return child;
    clocks_only ? ask_all_clocks() : all_calls(1000 + number % 8, number);
    _exit(0);
}

/* What a vforked child may do: close, and exec. It borrows its parent's memory, and so all that the recorder keeps. */
static pid_t vforked(int number)
{
    char name[40];
    snprintf(name, sizeof name, "closed-%d", number % 8);
    int fd = open(name, O_WRONLY | O_CREAT, 0600);
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    close(fd);
    return child;
}

static char *program; /* argv[0] */

/* A program that has threads of its own, with the same libraries preloaded. */
static pid_t spawned(int number)
{
    char name[40];
    char *argv[] = {"sh", "-c", "echo spawned >> \"$0\" && exec \"$1\" fork 1 1 > /dev/null", name, program, NULL};
    pid_t child;
    snprintf(name, sizeof name, "spawned-%d", number % 8);
    must(!posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ), "posix_spawn");
    return child;
}

/* A child that ends by exit() while another of its threads waits inside of a stream, as one that reads its standard
 * input does. */
static void *wait_in_a_stream(void *file)
{
    fgetc(file);
    return NULL;
}

static pid_t exiting(int number)
{
    pid_t child = fork();
    if (child)
        return child;
    int ends[2];
    pthread_t reader;
    must(!pipe(ends), "pipe");
    FILE *silent = fdopen(ends[0], "r");
    pthread_create(&reader, NULL, wait_in_a_stream, silent);
    char name[40];
    snprintf(name, sizeof name, "exit-%d", number % 8);
    FILE *file = fopen(name, "w");
    fprintf(file, "flushed by exit %d\n", number);
    while (ftrylockfile(silent) == 0) { /* until the reader holds it */
        funlockfile(silent);
        sched_yield();
    }
    exit(0);
}

static int hangs(pid_t child)
{
    struct timespec pause = {0, 200000};
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t give_up = now.tv_sec + DEADLINE_S;
    int status;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > give_up) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return 1;
        }
        nanosleep(&pause, NULL);
    }
    must(ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child failed");
    return 0;
}

int main(int argc, char **argv)
{
    must(argc == 4, "usage: stress fork|signal|vfork|spawn|exit|clock CHILDREN THREADS");
    int children = atoi(argv[2]), threads = atoi(argv[3]), hung = 0;
    pthread_t workers[64];
    must(threads <= 64, "at most 64 threads");
    pid_t (*start)(int) = !strcmp(argv[1], "vfork")   ? vforked
                          : !strcmp(argv[1], "spawn") ? spawned
                          : !strcmp(argv[1], "exit")  ? exiting
                                                      : forked;
    program = argv[0];
    self = getpid();
    clocks_only = !strcmp(argv[1], "clock");
    if (!strcmp(argv[1], "signal"))
        begin_interrupting();
    for (int i = 0; i < threads; i++)
        pthread_create(&workers[i], NULL, work, (void *)(long)i);
    for (int i = 0; i < children; i++) {
        for (int worker = 0; worker < threads && watched >= 0; worker++)
            pthread_kill(workers[worker], SIGALRM); /* a timer's signal mostly goes to the first thread */
        hung += hangs(start(i));
    }
    atomic_store(&ending, 1);
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i], NULL);
    must(watched < 0 || atomic_load(&handled) > 0, "no signal came");
    printf("%d ended, %d hung\n", children, hung);
    return hung != 0;
}
