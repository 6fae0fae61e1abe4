/* Starting a server hundreds of times for little more than the price of one.
 *
 * Preloaded into an unmodified server, this stops it at its first pthread_create: it has read its configuration,
 * made its tables and opened its sockets, but has not looked at its data. From then on the process is a template.
 * For each byte that arrives on a control socket it forks, and the copy goes on where the template stopped: it loads
 * its data with its own start-up code, opens its files, and serves. This saves the part of a start that is the
 * same every time: loading and relocating libraries, parsing, allocating.
 *
 * Stopping before the first thread is what makes the copy whole: fork keeps one thread, and there is only one.
 *
 * Protocol, native integers: one byte in; then the copy's pid (int32), and at its end its wait status (int32), out.
 * A copy leads a process group of its own, so that what it forks can be killed with it. One copy lives at a time, since
 * all share the template's listening sockets and its epoll. When the control socket closes the template ends; a copy
 * dies with its template.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAYOUT_VERSION 1
#define EXPORT __attribute__((visibility("default")))

typedef int create_thread(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

EXPORT int recollect_prestart_layout(void) { return LAYOUT_VERSION; }

static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    int control = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (control >= 0 && connect(control, (struct sockaddr *)&address, sizeof address) != 0) {
        close(control);
        return -1;
    }
    return control;
}

static void say(int control, int32_t number) {
    if (write(control, &number, sizeof number) != sizeof number)
        _exit(0);
}

/* In the template: runs until the other end of the socket is closed. Returns in each copy. */
static void serve(int control) {
    pid_t template = getpid();
    char asked;
    while (read(control, &asked, 1) == 1) {
        pid_t copy = fork();
        if (copy == 0) {
            close(control);
            setpgid(0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != template)
                _exit(127);
            return;
        }
        setpgid(copy, copy); /* parent and child both do it: the group exists before anybody needs it */
        say(control, copy);
        int status = 0;
        while (copy > 0 && waitpid(copy, &status, 0) < 0 && errno == EINTR)
            ;
        say(control, status);
    }
    _exit(0);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    static create_thread *next;
    if (!next) {
        next = (create_thread *)dlsym(RTLD_NEXT, "pthread_create");
        const char *path = getenv("RECOLLECT_PRESTART");
        int control = path ? connect_to(path) : -1;
        unsetenv("RECOLLECT_PRESTART"); /* a program that the server starts is not a template */
        if (control >= 0)
            serve(control);
    }
    return next(thread, attributes, body, argument);
}
