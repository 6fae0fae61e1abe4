/* Which descriptors and paths lie under the root.
 *
 * A descriptor is looked up again on every call, because numbers are reused behind our back (close inside libc,
 * dup, fork). Only the answer "this inode lies under the root" is remembered per number; opening and closing forget it.
 */
#include "shim.h"

#include <stdio.h>
#include <string.h>

char root[PATH_MAX];

#define REMEMBERED 4096
enum { KNOWN = 1, INSIDE = 2, SYNCED = 4, APPENDED = 8, WRITABLE = 16, BITS = 31 };
static uint64_t remembered[REMEMBERED]; /* identity of the inode, with BITS in the low bits */

struct seen {
    mode_t mode;
    uint64_t ino, device;
    int64_t size;
};

/* Not fstat: asking for the time of the last change obliges newer kernels (6.13) to give the next write a time of its
 * own, which makes every fdatasync after it take half as long again. statx leaves the times out. */
static int see(int fd, struct seen *seen)
{
    struct statx found;
    struct stat status;
    if (!syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_SIZE, &found)) {
        uint64_t device = (uint64_t)found.stx_dev_major << 32 | found.stx_dev_minor;
        *seen = (struct seen){found.stx_mode, found.stx_ino, device, (int64_t)found.stx_size};
        return 1;
    }
    if (errno == EBADF || syscall(SYS_fstat, fd, &status))
        return 0;
    *seen = (struct seen){status.st_mode, status.st_ino, status.st_dev, status.st_size};
    return 1;
}

static uint64_t identity(const struct seen *seen)
{
    uint64_t mixed = (seen->ino * 0x9E3779B97F4A7C15u) ^ (seen->device * 0xC2B2AE3D27D4EB4Fu);
    return (mixed ^ mixed >> 29) & ~(uint64_t)BITS;
}

static ssize_t path_of(int fd, char *path)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (n >= 0)
        path[n] = 0;
    return n;
}

static int inside(const char *path)
{
    size_t n = strlen(root);
    return !strncmp(path, root, n) && (path[n] == '/' || !path[n]);
}

static uint64_t look(int fd)
{
    char path[PATH_MAX];
    int mode = (int)syscall(SYS_fcntl, fd, F_GETFL, 0);
    uint64_t bits = KNOWN;
    if (path_of(fd, path) > 0 && inside(path))
        bits |= INSIDE;
    if (mode & (O_SYNC | O_DSYNC))
        bits |= SYNCED;
    if (mode & O_APPEND)
        bits |= APPENDED;
    if ((mode & O_ACCMODE) != O_RDONLY)
        bits |= WRITABLE;
    return bits;
}

int track(int fd, struct file *file)
{
    struct seen seen;
    file->kind = OUTSIDE;
    if (!shared || fd < 0)
        return OUTSIDE;
    int saved = errno;
    if (!see(fd, &seen) || !(S_ISREG(seen.mode) || S_ISDIR(seen.mode))) {
        errno = saved;
        return OUTSIDE;
    }
    uint64_t who = identity(&seen), known = fd < REMEMBERED ? __atomic_load_n(&remembered[fd], __ATOMIC_RELAXED) : 0;
    if (!(known & KNOWN) || (known & ~(uint64_t)BITS) != who) {
        known = who | look(fd);
        if (fd < REMEMBERED)
            __atomic_store_n(&remembered[fd], known, __ATOMIC_RELAXED);
    }
    errno = saved;
    if (!(known & INSIDE))
        return OUTSIDE;
    file->kind = S_ISDIR(seen.mode) ? DIRECTORY : REGULAR;
    file->ino = seen.ino;
    file->size = seen.size;
    file->synced = (known & SYNCED) != 0;
    file->appended = (known & APPENDED) != 0;
    file->writable = (known & WRITABLE) != 0;
    return file->kind;
}

void forget(int fd)
{
    if (fd >= 0 && fd < REMEMBERED)
        __atomic_store_n(&remembered[fd], 0, __ATOMIC_RELAXED);
}

/* The path of a name relative to the root; 0 if it lies elsewhere. The folder is resolved by the kernel, so symbolic
 * links and ".." mean what they mean to the call itself; the last part is left alone, as rename and unlink do. */
int locate(int dirfd, const char *path, char *relative)
{
    char folder[PATH_MAX];
    if (!shared || !path || !*path || strlen(path) >= PATH_MAX)
        return 0;
    int saved = errno;
    strcpy(folder, path);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = 0;
    char *slash = strrchr(folder, '/');
    char last[NAME_MAX + 1];
    if (strlen(slash ? slash + 1 : folder) > NAME_MAX)
        return 0;
    strcpy(last, slash ? slash + 1 : folder);
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = 0;
    int fd = (int)syscall(SYS_openat, dirfd, folder, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    ssize_t n = fd < 0 ? -1 : path_of(fd, folder);
    if (fd >= 0)
        syscall(SYS_close, fd);
    errno = saved;
    if (n < 0 || (size_t)n + strlen(last) + 2 > PATH_MAX || !inside(folder))
        return 0;
    const char *below = folder + strlen(root);
    snprintf(relative, PATH_MAX, "%s%s%s", *below ? below + 1 : "", *below ? "/" : "", last);
    return 1;
}

int reopen(int fd)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
}
