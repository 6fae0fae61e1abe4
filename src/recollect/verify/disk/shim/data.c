/* Calls that change what a file holds: open with O_CREAT or O_TRUNC, writes, truncation, allocation, kernel copies. */
#include "shim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>

/* ---- open ---- */

static void log_created(int fd, const char *path, mode_t mode)
{
    struct stat status;
    syscall(SYS_fstat, fd, &status);
    unseen_remove(status.st_ino); /* a recycled inode number starts afresh */
    struct record fields = {.op = OP_CREATE, .ino = status.st_ino, .length = mode};
    append(&fields, path, NULL, NULL, 0);
}

static int open_plain(int dirfd, const char *path, int flags, mode_t mode)
{
    int fd = (int)syscall(SYS_openat, dirfd, path, flags, mode);
    forget(fd);
    return fd;
}

/* Only O_EXCL tells whether this call or another process created the file; therefore it is tried first. */
static int open_creating(int dirfd, const char *path, int flags, mode_t mode, const char *relative, int *created)
{
    for (int attempt = 0; attempt < 8; attempt++) {
        int full = shared->space_left == 0;
        int fd = full ? -1 : open_plain(dirfd, path, flags | O_CREAT | O_EXCL, mode);
        if (fd >= 0) {
            log_created(fd, relative, mode);
            *created = 1;
            return fd;
        }
        if (!full && ((flags & O_EXCL) || errno != EEXIST))
            return -1;
        fd = open_plain(dirfd, path, flags & ~(O_CREAT | O_EXCL), mode);
        if (full && (fd < 0 || (flags & O_EXCL))) {
            if (fd >= 0)
                syscall(SYS_close, fd);
            errno = fd >= 0 ? EEXIST : ENOSPC;
            return -1;
        }
        if (fd >= 0 || errno != ENOENT) /* ENOENT: removed in between; try again */
            return fd;
    }
    return open_plain(dirfd, path, flags, mode);
}

int open_recorded(int dirfd, const char *path, int flags, mode_t mode)
{
    char relative[PATH_MAX];
    int nameless = (flags & O_TMPFILE) == O_TMPFILE;
    if (!(flags & (O_CREAT | O_TRUNC) || nameless) || !locate(dirfd, path, relative))
        return open_plain(dirfd, path, flags, mode);
    depart(OP_CREATE, 0);
    int fd;
    struct file file;
    if (nameless) {
        fd = open_plain(dirfd, path, flags, mode);
        if (fd >= 0)
            log_created(fd, "", mode);
    } else {
        int created = 0;
        fd = flags & O_CREAT ? open_creating(dirfd, path, flags, mode, relative, &created) : open_plain(dirfd, path, flags, mode);
        if (fd >= 0 && (flags & O_TRUNC) && !created && track(fd, &file) == REGULAR) {
            struct record fields = {.op = OP_TRUNCATE, .ino = file.ino};
            append(&fields, NULL, NULL, NULL, 0);
        }
    }
    arrive();
    return fd;
}

#define MODE_ARGUMENT(flags)                                                                                           \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {                                                     \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

EXPORT int open(const char *path, int flags, ...) { MODE_ARGUMENT(flags) return open_recorded(AT_FDCWD, path, flags, mode); }
EXPORT int open64(const char *path, int flags, ...) { MODE_ARGUMENT(flags) return open_recorded(AT_FDCWD, path, flags, mode); }
EXPORT int openat(int dirfd, const char *path, int flags, ...) { MODE_ARGUMENT(flags) return open_recorded(dirfd, path, flags, mode); }
EXPORT int openat64(int dirfd, const char *path, int flags, ...) { MODE_ARGUMENT(flags) return open_recorded(dirfd, path, flags, mode); }
EXPORT int creat(const char *path, mode_t mode) { return open_recorded(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
EXPORT int creat64(const char *path, mode_t mode) { return creat(path, mode); }
/* What _FORTIFY_SOURCE turns the calls above into. */
EXPORT int __open_2(const char *path, int flags) { return open_recorded(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return open_recorded(AT_FDCWD, path, flags, 0); }
EXPORT int __openat_2(int dirfd, const char *path, int flags) { return open_recorded(dirfd, path, flags, 0); }
EXPORT int __openat64_2(int dirfd, const char *path, int flags) { return open_recorded(dirfd, path, flags, 0); }

/* ext4 and XFS write out a file that was cut to nothing and rewritten as soon as it is closed. */
void log_close(const struct file *file)
{
    if (file->kind != REGULAR || !file->writable)
        return;
    struct record fields = {.op = OP_CLOSE, .ino = file->ino};
    append(&fields, NULL, NULL, NULL, 0);
}

EXPORT int close(int fd)
{
    struct file file;
    track(fd, &file);
    forget(fd);
    int result = (int)syscall(SYS_close, fd);
    log_close(&file);
    return result;
}

/* libc makes temporary files by an open of its own. */
static int made_temporary(int fd, const char *path)
{
    char relative[PATH_MAX];
    forget(fd);
    if (fd >= 0 && locate(AT_FDCWD, path, relative))
        log_created(fd, relative, 0600);
    return fd;
}
EXPORT int mkostemps(char *path, int suffix, int flags)
{
    return made_temporary(NEXT(mkostemps, "mkostemps")(path, suffix, flags), path);
}
EXPORT int mkostemps64(char *path, int suffix, int flags) { return mkostemps(path, suffix, flags); }
EXPORT int mkstemps(char *path, int suffix) { return mkostemps(path, suffix, 0); }
EXPORT int mkstemps64(char *path, int suffix) { return mkostemps(path, suffix, 0); }
EXPORT int mkostemp(char *path, int flags) { return mkostemps(path, 0, flags); }
EXPORT int mkostemp64(char *path, int flags) { return mkostemps(path, 0, flags); }
EXPORT int mkstemp(char *path) { return mkostemps(path, 0, 0); }
EXPORT int mkstemp64(char *path) { return mkostemps(path, 0, 0); }

/* ---- writes ---- */

int refuse_growth(int64_t bytes)
{
    if (shared->space_left < 0 || bytes <= 0)
        return 0;
    if (__atomic_sub_fetch(&shared->space_left, bytes, __ATOMIC_SEQ_CST) >= 0)
        return 0;
    __atomic_store_n(&shared->space_left, 0, __ATOMIC_SEQ_CST);
    errno = ENOSPC;
    return 1;
}

/* How many of `wanted` bytes the injected faults let through; -1 with errno set for none. A disk that fills up takes
 * what still fits and reports a short write, and ENOSPC only the next time. */
static ssize_t permitted(const struct file *file, int64_t offset, size_t wanted)
{
    int64_t allowed = (int64_t)wanted;
    if (shared->space_left >= 0 && wanted) {
        int64_t growth = (offset < 0 || file->appended ? file->size : offset) + allowed - file->size;
        int64_t left = shared->space_left;
        if (growth > allowed)
            growth = allowed;
        if (growth > left) {
            allowed -= growth - left;
            growth = left;
        }
        if (allowed <= 0 || refuse_growth(growth)) {
            errno = ENOSPC;
            return -1;
        }
    }
    if (shared->torn_percent >= 0 && shared->kill_at > 0 && (int64_t)shared->count + 1 >= shared->kill_at) {
        allowed = allowed * shared->torn_percent / 100;
        if (allowed <= 0)
            halt();
    }
    return (ssize_t)allowed;
}

static void log_write(int fd, const struct file *file, int64_t offset, const struct iovec *data, int pieces, ssize_t n, int synced)
{
    if (offset < 0 || file->appended)
        offset = offset < 0 ? syscall(SYS_lseek, fd, 0, SEEK_CUR) - n : file->size;
    struct record fields = {.op = OP_WRITE, .ino = file->ino, .offset = offset, .length = (uint64_t)n, .data_len = (uint64_t)n,
                            .flags = file->synced || synced ? FLAG_SYNCED : 0};
    append(&fields, NULL, NULL, data, pieces);
}

/* Vectors are cut down to what is permitted by writing a shorter copy of them. */
static int shorten(struct iovec *copy, const struct iovec *data, int pieces, size_t allowed)
{
    int used = 0;
    for (; used < pieces && allowed; used++) {
        copy[used] = data[used];
        if (copy[used].iov_len > allowed)
            copy[used].iov_len = allowed;
        allowed -= copy[used].iov_len;
    }
    return used;
}

static size_t length_of(const struct iovec *data, int pieces)
{
    size_t total = 0;
    for (int i = 0; i < pieces; i++)
        total += data[i].iov_len;
    return total;
}

/* All six calls end here. offset -1: at the descriptor's own position. */
static ssize_t write_recorded(int fd, const struct iovec *data, int pieces, int64_t offset, int how)
{
    struct file file;
    struct iovec shorter[pieces > 0 && pieces <= IOV_MAX ? pieces : 1];
    int tracked = pieces <= IOV_MAX && track(fd, &file) == REGULAR;
    if (tracked) {
        size_t wanted = length_of(data, pieces);
        ssize_t allowed = permitted(&file, offset, wanted);
        if (allowed < 0)
            return -1;
        if ((size_t)allowed < wanted) {
            pieces = shorten(shorter, data, pieces, (size_t)allowed);
            data = shorter;
        }
        depart(OP_WRITE, file.ino);
    }
    ssize_t n;
    if (pieces == 1 && !how)
        n = offset < 0 ? syscall(SYS_write, fd, data->iov_base, data->iov_len)
                       : syscall(SYS_pwrite64, fd, data->iov_base, data->iov_len, offset);
    else if (how)
        n = syscall(SYS_pwritev2, fd, data, pieces, offset, 0L, how);
    else
        n = offset < 0 ? syscall(SYS_writev, fd, data, pieces) : syscall(SYS_pwritev, fd, data, pieces, offset, 0L);
    if (tracked) {
        if (n > 0)
            log_write(fd, &file, offset, data, pieces, n, how & (RWF_DSYNC | RWF_SYNC));
        arrive();
    }
    return n;
}

EXPORT ssize_t write(int fd, const void *bytes, size_t n)
{
    struct iovec piece = {(void *)bytes, n};
    return write_recorded(fd, &piece, 1, -1, 0);
}
EXPORT ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    struct iovec piece = {(void *)bytes, n};
    if (offset < 0) {
        errno = EINVAL;
        return -1;
    }
    return write_recorded(fd, &piece, 1, offset, 0);
}
EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t offset) { return pwrite(fd, bytes, n, offset); }
EXPORT ssize_t writev(int fd, const struct iovec *data, int pieces) { return write_recorded(fd, data, pieces, -1, 0); }
EXPORT ssize_t pwritev(int fd, const struct iovec *data, int pieces, off_t offset)
{
    if (offset < 0) {
        errno = EINVAL;
        return -1;
    }
    return write_recorded(fd, data, pieces, offset, 0);
}
EXPORT ssize_t pwritev64(int fd, const struct iovec *data, int pieces, off_t offset) { return pwritev(fd, data, pieces, offset); }
EXPORT ssize_t pwritev2(int fd, const struct iovec *data, int pieces, off_t offset, int how)
{
    return write_recorded(fd, data, pieces, offset, how);
}
EXPORT ssize_t pwritev64v2(int fd, const struct iovec *data, int pieces, off_t offset, int how)
{
    return write_recorded(fd, data, pieces, offset, how);
}

/* ---- copies inside the kernel: read back what arrived ---- */

static ssize_t copied(int fd, const struct file *file, int64_t offset, ssize_t n)
{
    char bytes[16 * PAGE];
    if (file->kind != REGULAR)
        return n;
    int saved = errno;
    int reader = n > 0 ? reopen(fd) : -1;
    if (n > 0 && offset < 0)
        offset = syscall(SYS_lseek, fd, 0, SEEK_CUR) - n;
    for (ssize_t left = n, got; reader >= 0 && left > 0; left -= got, offset += got) {
        got = syscall(SYS_pread64, reader, bytes, (size_t)left < sizeof bytes ? (size_t)left : sizeof bytes, offset);
        if (got <= 0)
            break;
        struct iovec piece = {bytes, (size_t)got};
        struct record fields = {.op = OP_WRITE, .ino = file->ino, .offset = offset, .length = (uint64_t)got,
                                .data_len = (uint64_t)got, .flags = file->synced ? FLAG_SYNCED : 0};
        append(&fields, NULL, NULL, &piece, 1);
    }
    if (reader >= 0)
        syscall(SYS_close, reader);
    arrive();
    errno = saved;
    return n;
}

static int copying(int fd, struct file *file, size_t *n)
{
    if (track(fd, file) != REGULAR)
        return 1;
    ssize_t allowed = permitted(file, -1, *n);
    if (allowed < 0)
        return 0;
    *n = (size_t)allowed;
    depart(OP_WRITE, file->ino);
    return 1;
}

EXPORT ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t n, unsigned flags)
{
    struct file file;
    off64_t offset = to_offset ? *to_offset : -1;
    return copying(to, &file, &n) ? copied(to, &file, offset, syscall(SYS_copy_file_range, from, from_offset, to, to_offset, n, flags)) : -1;
}
EXPORT ssize_t sendfile(int to, int from, off_t *from_offset, size_t n)
{
    struct file file;
    return copying(to, &file, &n) ? copied(to, &file, -1, syscall(SYS_sendfile, to, from, from_offset, n)) : -1;
}
EXPORT ssize_t sendfile64(int to, int from, off64_t *from_offset, size_t n) { return sendfile(to, from, from_offset, n); }
EXPORT ssize_t splice(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t n, unsigned flags)
{
    struct file file;
    off64_t offset = to_offset ? *to_offset : -1;
    return copying(to, &file, &n) ? copied(to, &file, offset, syscall(SYS_splice, from, from_offset, to, to_offset, n, flags)) : -1;
}

/* ---- length and allocation ---- */

EXPORT int ftruncate(int fd, off_t length)
{
    struct file file;
    if (track(fd, &file) != REGULAR)
        return (int)syscall(SYS_ftruncate, fd, length);
    depart(OP_TRUNCATE, file.ino);
    int result = (int)syscall(SYS_ftruncate, fd, length);
    if (!result) {
        struct record fields = {.op = OP_TRUNCATE, .ino = file.ino, .length = (uint64_t)length};
        append(&fields, NULL, NULL, NULL, 0);
    }
    arrive();
    return result;
}
EXPORT int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }

EXPORT int truncate(const char *path, off_t length)
{
    if (!shared)
        return (int)syscall(SYS_truncate, path, length);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    forget(fd);
    int result = ftruncate(fd, length), saved = errno;
    close(fd);
    errno = saved;
    return result;
}
EXPORT int truncate64(const char *path, off_t length) { return truncate(path, length); }

/* posix: posix_fallocate, which returns the error, and for which libc has a fallback if the kernel cannot do it. */
static int allocate(int fd, int mode, off_t offset, off_t length, int posix)
{
    struct file file;
    int tracked = track(fd, &file) == REGULAR;
    if (tracked && !(mode & FALLOC_FL_PUNCH_HOLE) && refuse_growth(offset + length - file.size))
        return posix ? ENOSPC : -1;
    if (tracked)
        depart(OP_ALLOCATE, file.ino);
    int result = posix ? NEXT(posix_fallocate, "posix_fallocate")(fd, offset, length)
                       : (int)syscall(SYS_fallocate, fd, mode, offset, length);
    if (tracked) {
        struct record fields = {.op = OP_ALLOCATE, .flags = (uint16_t)mode, .ino = file.ino, .offset = offset, .length = (uint64_t)length};
        if (!result)
            append(&fields, NULL, NULL, NULL, 0);
        arrive();
    }
    return result;
}
EXPORT int fallocate(int fd, int mode, off_t offset, off_t length) { return allocate(fd, mode, offset, length, 0); }
EXPORT int fallocate64(int fd, int mode, off_t offset, off_t length) { return allocate(fd, mode, offset, length, 0); }
EXPORT int posix_fallocate(int fd, off_t offset, off_t length) { return allocate(fd, 0, offset, length, 1); }
EXPORT int posix_fallocate64(int fd, off_t offset, off_t length) { return allocate(fd, 0, offset, length, 1); }
