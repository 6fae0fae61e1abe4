/* FILE streams. libc writes from inside itself, so streams are opened through us and read back when they are flushed,
 * closed or synced (unseen.c). */
#include "shim.h"

#include <stdio.h>
#include <string.h>

static int writes(const char *mode) { return *mode != 'r' || strchr(mode, '+') != NULL; }

static int flags_of(const char *mode)
{
    int flags = strchr(mode, '+') ? O_RDWR : O_WRONLY;
    if (*mode == 'w')
        flags |= O_CREAT | O_TRUNC;
    if (*mode == 'a')
        flags |= O_CREAT | O_APPEND;
    if (strchr(mode, 'x'))
        flags |= O_EXCL;
    if (strchr(mode, 'e'))
        flags |= O_CLOEXEC;
    return flags;
}

static void watch(int fd)
{
    struct file file;
    if (track(fd, &file) == REGULAR)
        unseen_add(file.ino);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
    if (shared && writes(mode))
        watch(fd);
    return NEXT(fdopen, "fdopen")(fd, mode);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
    char relative[PATH_MAX];
    if (!writes(mode) || !locate(AT_FDCWD, path, relative))
        return NEXT(fopen, "fopen")(path, mode);
    int fd = open_recorded(AT_FDCWD, path, flags_of(mode), 0666);
    if (fd < 0)
        return NULL;
    FILE *stream = fdopen(fd, mode);
    if (!stream)
        close(fd);
    return stream;
}
EXPORT FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }

EXPORT FILE *freopen(const char *path, const char *mode, FILE *stream)
{
    char relative[PATH_MAX];
    if (path && writes(mode) && locate(AT_FDCWD, path, relative)) {
        int fd = open_recorded(AT_FDCWD, path, flags_of(mode) & ~O_EXCL, 0666); /* creates or cuts it, on the record */
        if (fd >= 0)
            close(fd);
    }
    forget(fileno(stream));
    FILE *opened = NEXT(freopen, "freopen")(path, mode, stream);
    if (shared && opened && writes(mode))
        watch(fileno(opened));
    return opened;
}
EXPORT FILE *freopen64(const char *path, const char *mode, FILE *stream) { return freopen(path, mode, stream); }

static void look_back(FILE *stream)
{
    struct file file;
    int fd = shared && stream ? fileno(stream) : -1;
    if (track(fd, &file) == REGULAR && unseen_has(file.ino)) {
        alive();
        snapshot(fd, file.ino);
    }
}

EXPORT int fflush(FILE *stream)
{
    int result = NEXT(fflush, "fflush")(stream);
    look_back(stream);
    return result;
}

EXPORT int fclose(FILE *stream)
{
    struct file file = {.kind = OUTSIDE};
    if (shared && stream) {
        NEXT(fflush, "fflush")(stream);
        look_back(stream);
        track(fileno(stream), &file);
        forget(fileno(stream));
    }
    int result = NEXT(fclose, "fclose")(stream);
    log_close(&file);
    return result;
}

/* Only the injected full disk needs to see single writes of a stream. */
EXPORT size_t fwrite(const void *bytes, size_t size, size_t count, FILE *stream)
{
    struct file file;
    if (shared && shared->space_left >= 0 && track(fileno(stream), &file) == REGULAR && refuse_growth((int64_t)(size * count)))
        return 0;
    return NEXT(fwrite, "fwrite")(bytes, size, count, stream);
}
