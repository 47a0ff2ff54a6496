/* System calls on the files of one directory that fail as they are told to: loaded before the C library (LD_PRELOAD).

   The directory is named by FAULT_ROOT. What is to fail stands in the file FAULT_PLAN, which whoever tests maps, too,
   and may change at any time (tests/crash/faults.py has the same layout):

       offset  size  field
            0     4  armed: nothing fails while it is 0
            4     4  rules: how many there are
            8     8  calls: how many calls on files of the directory have been seen while armed
           16     8  failed: how many of them were made to fail
           24   128  each rule: operations (4, bits of enum operation), skip (4, matching calls to let pass first),
                     times (4, how many then fail, < 0 for ever), error (4, errno; 0 for a short write), seen (4),
                     unused (12), file (96, a part of the path below the directory, "" for any)

   A write that is made short writes half of it; one of a single byte is let through. Writes by io_submit are made to
   fail when their result is fetched, or at once where EAGAIN is wanted. Only Linux on a 64-bit machine is served. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum operation { OPEN = 1, WRITE = 2, SYNC = 4, TRUNCATE = 8, RENAME = 16, REMOVE = 32, MKDIR = 64, READ = 128, AIO = 256 };
enum { PASS = 0, SHORT = -1, MOST_FDS = 65536, MOST_RULES = 64 };

struct rule {
    uint32_t operations, skip;
    int32_t times, error;
    uint32_t seen;
    char unused[12];
    char file[96];
};
struct plan {
    uint32_t armed, count;
    uint64_t calls, failed;
    struct rule rules[MOST_RULES];
};

static struct plan *plan;
static char root[PATH_MAX];
static size_t root_length;
static char *_Atomic paths[MOST_FDS];
static __thread int aio_fate;

#define REAL(name) \
    ({ \
        static typeof(&name) found; \
        if (!found) \
            found = (typeof(&name))real(#name); \
        found; \
    })

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("FAULT_ROOT"), *file = getenv("FAULT_PLAN");
    if (!where || !file)
        return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    root_length = strlen(where);
    if (map == MAP_FAILED || root_length >= sizeof root)
        return;
    memcpy(root, where, root_length + 1);
    plan = map;
}

/* Give the part of a path below the directory, or NULL. Paths are absolute or relative to it alone. */
static const char *below(const char *path) {
    if (!plan || !path || strncmp(path, root, root_length) != 0)
        return NULL;
    return path[root_length] == '/' ? path + root_length + 1 : path[root_length] ? NULL : "";
}

static const char *path_of(int fd) { return fd >= 0 && fd < MOST_FDS ? paths[fd] : NULL; }

static int fate(uint32_t operation, const char *path) {
    if (!plan || !path || !__atomic_load_n(&plan->armed, __ATOMIC_SEQ_CST))
        return PASS;
    __atomic_add_fetch(&plan->calls, 1, __ATOMIC_SEQ_CST);
    for (uint32_t number = 0; number < plan->count && number < MOST_RULES; number++) {
        struct rule *rule = &plan->rules[number];
        if (!(rule->operations & operation) || (rule->file[0] && !strstr(path, rule->file)))
            continue;
        uint32_t seen = __atomic_fetch_add(&rule->seen, 1, __ATOMIC_SEQ_CST);
        if (seen < rule->skip || (rule->times >= 0 && seen >= rule->skip + (uint32_t)rule->times))
            continue;
        if (!rule->error && operation != WRITE && operation != AIO)
            continue;
        __atomic_add_fetch(&plan->failed, 1, __ATOMIC_SEQ_CST);
        return rule->error ? rule->error : SHORT;
    }
    return PASS;
}

static int refuse(int error) {
    errno = error;
    return -1;
}

/* Names are never freed: another thread may be looking at one, and tests are short. */
static void note(int fd, const char *path) {
    if (fd >= 0 && fd < MOST_FDS && (path || paths[fd]))
        paths[fd] = path ? strdup(path) : NULL;
}

static int open_it(int directory, const char *path, int flags, mode_t mode) {
    const char *place = below(path);
    int error = place ? fate(OPEN, place) : PASS;
    if (error > 0)
        return refuse(error);
    int fd = (int)syscall(SYS_openat, directory, path, flags, mode);
    note(fd, place);
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *path, int flags, ...) { MODE(flags) return open_it(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return open_it(AT_FDCWD, path, flags, mode); }
int openat(int directory, const char *path, int flags, ...) { MODE(flags) return open_it(directory, path, flags, mode); }
int openat64(int directory, const char *path, int flags, ...) { MODE(flags) return open_it(directory, path, flags, mode); }

int close(int fd) {
    note(fd, NULL);
    return REAL(close)(fd);
}

/* Writes. */

static ssize_t write_parts(int fd, const struct iovec *parts, int count, off_t at, int flags, int positioned) {
    const char *path = path_of(fd);
    int end = path ? fate(WRITE, path) : PASS;
    if (end > 0)
        return refuse(end);
    if (end == SHORT && count > 0) {
        size_t whole = 0;
        for (int each = 0; each < count; each++)
            whole += parts[each].iov_len;
        size_t part = parts[0].iov_len < whole / 2 ? parts[0].iov_len : whole / 2;
        if (part && (!(fcntl(fd, F_GETFL) & O_DIRECT) || (part &= ~(size_t)4095))) {
            struct iovec one = {parts[0].iov_base, part};
            return positioned ? REAL(pwritev2)(fd, &one, 1, at, flags) : REAL(writev)(fd, &one, 1);
        }
    }
    return positioned ? REAL(pwritev2)(fd, parts, count, at, flags) : REAL(writev)(fd, parts, count);
}

#define ONE(data, size) struct iovec one = {(void *)(data), size}

ssize_t write(int fd, const void *data, size_t size) {
    if (!path_of(fd))
        return REAL(write)(fd, data, size);
    ONE(data, size);
    return write_parts(fd, &one, 1, 0, 0, 0);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    ONE(data, size);
    return write_parts(fd, &one, 1, at, 0, 1);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    ONE(data, size);
    return write_parts(fd, &one, 1, at, 0, 1);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return write_parts(fd, parts, count, at, 0, 1); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return write_parts(fd, parts, count, at, 0, 1); }
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return path_of(fd) ? write_parts(fd, parts, count, at, flags, 1) : REAL(pwritev2)(fd, parts, count, at, flags);
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    return path_of(fd) ? write_parts(fd, parts, count, at, flags, 1) : REAL(pwritev64v2)(fd, parts, count, at, flags);
}

/* Everything else on a descriptor. */

#define ON_FD(operation, fd, call) \
    do { \
        const char *path = path_of(fd); \
        int error = path ? fate(operation, path) : PASS; \
        return error > 0 ? refuse(error) : (call); \
    } while (0)

int fsync(int fd) { ON_FD(SYNC, fd, REAL(fsync)(fd)); }
int fdatasync(int fd) { ON_FD(SYNC, fd, REAL(fdatasync)(fd)); }
int syncfs(int fd) { ON_FD(SYNC, fd, REAL(syncfs)(fd)); }
int ftruncate(int fd, off_t size) { ON_FD(TRUNCATE, fd, REAL(ftruncate)(fd, size)); }
int ftruncate64(int fd, off64_t size) { ON_FD(TRUNCATE, fd, REAL(ftruncate64)(fd, size)); }
ssize_t read(int fd, void *data, size_t size) { ON_FD(READ, fd, REAL(read)(fd, data, size)); }
ssize_t pread(int fd, void *data, size_t size, off_t at) { ON_FD(READ, fd, REAL(pread)(fd, data, size, at)); }
ssize_t pread64(int fd, void *data, size_t size, off64_t at) { ON_FD(READ, fd, REAL(pread64)(fd, data, size, at)); }
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    ON_FD(READ, fd, REAL(preadv2)(fd, parts, count, at, flags));
}
ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    ON_FD(READ, fd, REAL(preadv64v2)(fd, parts, count, at, flags));
}

/* By name. */

#define BY_NAME(operation, path, call) \
    do { \
        const char *place = below(path); \
        int error = place ? fate(operation, place) : PASS; \
        return error > 0 ? refuse(error) : (call); \
    } while (0)

int rename(const char *from, const char *to) { BY_NAME(RENAME, to, REAL(rename)(from, to)); }
int renameat(int a, const char *from, int b, const char *to) { BY_NAME(RENAME, to, REAL(renameat)(a, from, b, to)); }
int unlink(const char *path) { BY_NAME(REMOVE, path, REAL(unlink)(path)); }
int unlinkat(int directory, const char *path, int flags) { BY_NAME(REMOVE, path, REAL(unlinkat)(directory, path, flags)); }
int mkdir(const char *path, mode_t mode) { BY_NAME(MKDIR, path, REAL(mkdir)(path, mode)); }

/* Writes that the kernel does by itself: io_submit and io_getevents have no names in the C library. */

long syscall(long number, ...) {
    va_list more;
    va_start(more, number);
    long a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long);
    long d = va_arg(more, long), e = va_arg(more, long), f = va_arg(more, long);
    va_end(more);
    long result;
    if (number == SYS_io_submit && plan && b == 1) {
        struct iocb *request = ((struct iocb **)c)[0];
        const char *path = path_of((int)request->aio_fildes);
        aio_fate = path ? fate(AIO, path) : PASS;
        if (aio_fate == EAGAIN)
            return refuse(EAGAIN);
        if (aio_fate == SHORT && request->aio_nbytes >= 8192)
            request->aio_nbytes = (request->aio_nbytes / 2) & ~4095UL;
    }
    result = REAL(syscall)(number, a, b, c, d, e, f);
    if (number == SYS_io_getevents && result == 1 && aio_fate > 0) {
        ((struct io_event *)d)->res = -aio_fate;
        aio_fate = PASS;
    }
    return result;
}
