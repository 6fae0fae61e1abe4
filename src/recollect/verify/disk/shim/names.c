/* Calls that change names: rename, link, unlink, directories, symbolic links. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

static void log_names(enum op op, uint16_t flags, uint64_t ino, const char *path1, const char *path2)
{
    struct record fields = {.op = (uint16_t)op, .flags = flags, .ino = ino};
    append(&fields, path1, path2, NULL, 0);
}

static uint64_t inode_of(int dirfd, const char *path, int flags)
{
    struct stat status;
    int saved = errno;
    uint64_t ino = syscall(SYS_newfstatat, dirfd, path, &status, flags) ? 0 : status.st_ino;
    errno = saved;
    return ino;
}

static void log_arrival(int dirfd, const char *path, const char *relative)
{
    int fd = (int)syscall(SYS_openat, dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0)
        return;
    snapshot_new(fd, relative);
    syscall(SYS_close, fd);
}

EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    char path1[PATH_MAX], path2[PATH_MAX];
    int inside1 = locate(from_dir, from, path1), inside2 = locate(to_dir, to, path2);
    if (!inside1 && !inside2)
        return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    depart(OP_RENAME, 0);
    int result = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    if (!result) {
        if (inside1 && inside2)
            log_names(OP_RENAME, flags & RENAME_EXCHANGE ? FLAG_EXCHANGE : 0, 0, path1, path2);
        else if (inside1)
            log_names(OP_UNLINK, 0, 0, path1, NULL);
        else
            log_arrival(to_dir, to, path2);
    }
    arrive();
    return result;
}
EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to) { return renameat2(from_dir, from, to_dir, to, 0); }
EXPORT int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

EXPORT int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    char path[PATH_MAX];
    if (!locate(to_dir, to, path))
        return (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    depart(OP_LINK, 0);
    int result = (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    if (!result)
        log_names(OP_LINK, 0, inode_of(to_dir, to, AT_SYMLINK_NOFOLLOW), path, NULL);
    arrive();
    return result;
}
EXPORT int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

EXPORT int unlinkat(int dirfd, const char *path, int flags)
{
    char relative[PATH_MAX];
    if (!locate(dirfd, path, relative))
        return (int)syscall(SYS_unlinkat, dirfd, path, flags);
    depart(OP_UNLINK, 0);
    int result = (int)syscall(SYS_unlinkat, dirfd, path, flags);
    if (!result)
        log_names(flags & AT_REMOVEDIR ? OP_RMDIR : OP_UNLINK, 0, 0, relative, NULL);
    arrive();
    return result;
}
EXPORT int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
EXPORT int remove(const char *path)
{
    int result = unlink(path);
    return result && (errno == EISDIR || errno == EPERM) ? rmdir(path) : result;
}

EXPORT int mkdirat(int dirfd, const char *path, mode_t mode)
{
    char relative[PATH_MAX];
    if (!locate(dirfd, path, relative))
        return (int)syscall(SYS_mkdirat, dirfd, path, mode);
    if (shared->space_left == 0) {
        errno = ENOSPC;
        return -1;
    }
    depart(OP_MKDIR, 0);
    int result = (int)syscall(SYS_mkdirat, dirfd, path, mode);
    if (!result)
        log_names(OP_MKDIR, 0, inode_of(dirfd, path, AT_SYMLINK_NOFOLLOW), relative, NULL);
    arrive();
    return result;
}
EXPORT int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
EXPORT char *mkdtemp(char *path)
{
    char relative[PATH_MAX];
    char *made = NEXT(mkdtemp, "mkdtemp")(path);
    if (made && locate(AT_FDCWD, made, relative))
        log_names(OP_MKDIR, 0, inode_of(AT_FDCWD, made, AT_SYMLINK_NOFOLLOW), relative, NULL);
    return made;
}

EXPORT int symlinkat(const char *target, int dirfd, const char *path)
{
    char relative[PATH_MAX];
    if (!locate(dirfd, path, relative))
        return (int)syscall(SYS_symlinkat, target, dirfd, path);
    depart(OP_SYMLINK, 0);
    int result = (int)syscall(SYS_symlinkat, target, dirfd, path);
    if (!result)
        log_names(OP_SYMLINK, 0, inode_of(dirfd, path, AT_SYMLINK_NOFOLLOW), relative, target);
    arrive();
    return result;
}
EXPORT int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }
