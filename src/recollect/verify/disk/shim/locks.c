/* Locks for the little that cannot be done with one atomic operation: the tables of mappings and of page sums.
 *
 * A lock that is held at the moment of a fork would stay locked in the child for ever, since its holder is not there to
 * release it: so the child recreates the locks. (Taking them before the fork, as is often done, would not help: fork
 * takes libc's locks as well, and a thread whose signal handler waits for one of our locks while the thread holds one
 * of libc's would deadlock with the thread that forks.) What the holder was changing is half done in the child; so a
 * mapping is valid at any moment (memory.c), and the sums are forgotten.
 *
 * A signal handler that makes a recorded call would wait for ever for the call that it interrupted, so all signals are
 * blocked while a lock is held.
 *
 * A vforked child shares its parent's memory, and the parent's other threads go on and release their locks: it only has
 * to wait. Not covered: a child made by _Fork(3) or clone(2), without the handlers of fork(3).
 */
#include "shim.h"

#include <pthread.h>

static pthread_mutex_t locks[LOCKS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
_Static_assert(LOCKS == 2, "an initializer for each");

sigset_t hold(enum lock lock)
{
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&locks[lock]);
    return before;
}

void let_go(enum lock lock, sigset_t before)
{
    pthread_mutex_unlock(&locks[lock]);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void begin_in_child(void)
{
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_init(&locks[i], NULL);
    forget_all_sums();
}

/* By name, so that the same library loads into any libc: glibc's pthread_atfork is not in its shared object, only what
 * it calls is, and musl has nothing but pthread_atfork. */
void at_fork_in_child(void (*begin)(void))
{
    int (*glibc)(void (*)(void), void (*)(void), void (*)(void), void *) =
        (int (*)(void (*)(void), void (*)(void), void (*)(void), void *))dlsym(RTLD_DEFAULT, "__register_atfork");
    int (*posix)(void (*)(void), void (*)(void), void (*)(void)) =
        (int (*)(void (*)(void), void (*)(void), void (*)(void)))dlsym(RTLD_DEFAULT, "pthread_atfork");
    if (glibc)
        glibc(NULL, NULL, begin, NULL);
    else if (posix)
        posix(NULL, NULL, begin);
}

__attribute__((constructor)) static void prepare_for_forks(void) { at_fork_in_child(begin_in_child); }
