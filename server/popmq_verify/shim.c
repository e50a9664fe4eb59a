/* Logs what a broker does to the files of its data folder, so that a power cut can be played back afterwards.
 *
 * Preloaded (LD_PRELOAD) into the broker. POPMQ_CUT_FOLDER names the folder to watch, POPMQ_CUT_LOG the log. For every
 * write, truncation and sync of a file under the folder one record is appended: a header, and the bytes written or the
 * path. Files …lock and …reserve are left out: nothing in them outlives the processes that use them.
 *
 * One lock is held over each call and its record: the order of the log is the order of the calls, and a sync covers
 * exactly the writes before it. Writes through a descriptor with O_DSYNC or O_SYNC (LMDB's meta pages) are marked: they
 * are durable when they return. Times are CLOCK_MONOTONIC, as in the histories of the clients.
 *
 * POPMQ_CUT_CALLS=n: the process dies after its n-th record, between two calls. A kill from outside could fall between a
 * call and its record, and the log would lie about what the next process finds.
 * POPMQ_CUT_SYNCS=n: the n-th sync of a watched file fails with EIO, once, as a dying disk's would.
 * POPMQ_CUT_METAS=n: so does the n-th write through a descriptor with O_DSYNC or O_SYNC.
 * POPMQ_CUT_UNREADABLE=from-to: reads of these bytes of a watched file fail with EIO, but not those through a map.
 * POPMQ_CUT_FAIL=n,e,0|1: the n-th call that opens, writes, syncs, resizes, renames or removes a watched file fails with
 * the error e; with 1 all later ones do too. A process that preloads the shim may call popmq_cut_fail instead.
 * POPMQ_CUT_FAIL_FROM=path: these calls are counted from when this file is there: a start makes any number of them.
 * POPMQ_CUT_SLOW=n: each sync of a watched file takes n ms longer.
 * POPMQ_CUT_CLOCK=file: the file holds 8 bytes, a number of ns that the wall clock is ahead; it is mapped, so a change
 * of it is a jump of the clock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { DESCRIPTORS = 65536, FILES = 256 };

/* kinds: N new file or folder (bytes = path), W write, T truncate, S sync, M writable shared map, R rename (bytes = two
 * paths), U unlink (bytes = path) */
struct record {
    uint64_t start_ns, end_ns, offset, length;
    uint16_t file;
    uint8_t kind, durable;
    uint32_t spare;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static char folder[PATH_MAX];
static char *paths[FILES];
static int known;
static uint16_t watched[DESCRIPTORS]; /* descriptor → file + 1; 0 = not watched */
static uint8_t synchronous[DESCRIPTORS];
static long calls_left = -1, syncs_left = -1, metas_left = -1, slow_ms = 0;
static long unreadable_from, unreadable_to; /* bytes of a file */
static long counted, fail_at;               /* calls since popmq_cut_fail; 0 = none fails */
static int fail_error, fail_ever;
static const char *fail_from;                /* counting begins once this file is there; NULL: at once */
static volatile int64_t *ahead_ns; /* of the wall clock; NULL: it is as it is */

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

int clock_gettime(clockid_t clock, struct timespec *t) {
    static int (*asks)(clockid_t, struct timespec *);
    if (!asks) asks = REAL(clock_gettime);
    int failed = asks(clock, t);
    if (clock == CLOCK_REALTIME && ahead_ns && !failed) {
        int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + *ahead_ns;
        t->tv_sec = ns / 1000000000, t->tv_nsec = ns % 1000000000;
    }
    return failed;
}

static void slow(void) {
    struct timespec pause = {slow_ms / 1000, slow_ms % 1000 * 1000000};
    if (slow_ms > 0) nanosleep(&pause, NULL);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((constructor)) static void start(void) {
    const char *log = getenv("POPMQ_CUT_LOG"), *where = getenv("POPMQ_CUT_FOLDER");
    if (!log || !where) return;
    snprintf(folder, sizeof folder, "%s", where);
    if (getenv("POPMQ_CUT_CALLS")) calls_left = atol(getenv("POPMQ_CUT_CALLS"));
    if (getenv("POPMQ_CUT_SYNCS")) syncs_left = atol(getenv("POPMQ_CUT_SYNCS"));
    if (getenv("POPMQ_CUT_METAS")) metas_left = atol(getenv("POPMQ_CUT_METAS"));
    if (getenv("POPMQ_CUT_UNREADABLE")) sscanf(getenv("POPMQ_CUT_UNREADABLE"), "%ld-%ld", &unreadable_from, &unreadable_to);
    if (getenv("POPMQ_CUT_FAIL")) sscanf(getenv("POPMQ_CUT_FAIL"), "%ld,%d,%d", &fail_at, &fail_error, &fail_ever);
    fail_from = getenv("POPMQ_CUT_FAIL_FROM");
    if (getenv("POPMQ_CUT_SLOW")) slow_ms = atol(getenv("POPMQ_CUT_SLOW"));
    if (getenv("POPMQ_CUT_CLOCK")) {
        int fd = REAL(open)(getenv("POPMQ_CUT_CLOCK"), O_RDONLY | O_CLOEXEC);
        void *map = fd < 0 ? MAP_FAILED : REAL(mmap)(NULL, sizeof *ahead_ns, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) abort();
        ahead_ns = map;
    }
    log_fd = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* The log must be whole or the model is a lie: a failed append ends the broker. */
static void append(const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t done = REAL(write)(log_fd, at, size);
        if (done <= 0) abort();
        at += done;
        size -= (size_t)done;
    }
}

/* With the lock held and the record whole. */
static void maybe_die(void) {
    if (calls_left > 0 && --calls_left == 0) kill(getpid(), SIGKILL);
}

static void record(uint8_t kind, int fd, uint64_t start_ns, uint64_t offset, uint64_t length) {
    struct record r = {.start_ns = start_ns, .end_ns = now(), .offset = offset, .length = length, .kind = kind};
    r.file = (uint16_t)(watched[fd] - 1);
    r.durable = synchronous[fd];
    append(&r, sizeof r);
}

static int is_watched(int fd) { return log_fd >= 0 && fd >= 0 && fd < DESCRIPTORS && watched[fd]; }

static int inside(const char *path) {
    size_t n = strlen(folder), size = strlen(path);
    if (log_fd < 0 || strncmp(path, folder, n) != 0 || (path[n] != 0 && path[n] != '/')) return 0;
    return strcmp(path + size - (size < 4 ? size : 4), "lock") && strcmp(path + size - (size < 7 ? size : 7), "reserve");
}

static void watch(int fd, int flags) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return;
    path[n] = 0;
    if (!inside(path)) return;
    int file = 0;
    while (file < known && strcmp(paths[file], path) != 0) file++;
    if (file == FILES) abort();
    watched[fd] = (uint16_t)(file + 1);
    synchronous[fd] = (flags & (O_DSYNC | O_SYNC)) != 0;
    if (file == known) {
        paths[known++] = strdup(path);
        record('N', fd, now(), 0, (uint64_t)n);
        append(path, (size_t)n);
    }
    if (flags & O_TRUNC) record('T', fd, now(), 0, 0);
}

/* Counts a call; whether it fails. With the lock held. */
static int fails(void) {
    if (fail_from && access(fail_from, F_OK)) return 0;
    fail_from = NULL;
    if (++counted != fail_at && !(fail_ever && fail_at && counted > fail_at)) return 0;
    errno = fail_error;
    return 1;
}

/* The n-th call from now on fails, 0 = none; returns how many there were since this was called last. */
long popmq_cut_fail(long n, int error, int ever) {
    pthread_mutex_lock(&lock);
    long before = counted;
    counted = 0, fail_at = n, fail_error = error, fail_ever = ever;
    pthread_mutex_unlock(&lock);
    return before;
}

static int named_fails(const char *path) {
    if (!inside(path)) return 0;
    pthread_mutex_lock(&lock);
    int failed = fails();
    pthread_mutex_unlock(&lock);
    return failed;
}

static int opened(int fd, int flags) {
    if (fd < 0 || fd >= DESCRIPTORS || log_fd < 0) return fd;
    pthread_mutex_lock(&lock);
    watched[fd] = 0;
    watch(fd, flags);
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, mode_t); va_end(a); }
int open(const char *path, int flags, ...) { MODE(flags) return named_fails(path) ? -1 : opened(REAL(open)(path, flags, mode), flags); }
int open64(const char *path, int flags, ...) { MODE(flags) return named_fails(path) ? -1 : opened(REAL(open64)(path, flags, mode), flags); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return named_fails(path) ? -1 : opened(REAL(openat)(at, path, flags, mode), flags); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return named_fails(path) ? -1 : opened(REAL(openat64)(at, path, flags, mode), flags); }

int close(int fd) {
    if (is_watched(fd)) watched[fd] = 0;
    return REAL(close)(fd);
}

static int sick(long *left) {
    if (*left <= 0 || --*left > 0) return 0;
    errno = EIO;
    return 1;
}

#define LOCKED(fd, call)                        \
    if (!is_watched(fd)) return call;           \
    pthread_mutex_lock(&lock);                  \
    uint64_t start_ns = now();

static ssize_t wrote(int fd, uint64_t start_ns, uint64_t offset, const struct iovec *parts, int count, ssize_t done) {
    if (done > 0) {
        record('W', fd, start_ns, offset, (uint64_t)done);
        size_t left = (size_t)done;
        for (int i = 0; i < count && left > 0; i++) {
            size_t size = parts[i].iov_len < left ? parts[i].iov_len : left;
            append(parts[i].iov_base, size);
            left -= size;
        }
        maybe_die();
    }
    pthread_mutex_unlock(&lock);
    return done;
}

static uint64_t position(int fd) {
    if (fcntl(fd, F_GETFL) & O_APPEND) return (uint64_t)lseek(fd, 0, SEEK_END);
    return (uint64_t)lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    LOCKED(fd, REAL(write)(fd, bytes, size))
    uint64_t offset = position(fd);
    struct iovec part = {(void *)bytes, size};
    return wrote(fd, start_ns, offset, &part, 1, fails() ? -1 : REAL(write)(fd, bytes, size));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    LOCKED(fd, REAL(writev)(fd, parts, count))
    uint64_t offset = position(fd);
    return wrote(fd, start_ns, offset, parts, count, fails() ? -1 : REAL(writev)(fd, parts, count));
}

#define PWRITE(name, off)                                                                \
    ssize_t name(int fd, const void *bytes, size_t size, off offset) {                   \
        LOCKED(fd, REAL(name)(fd, bytes, size, offset))                                  \
        struct iovec part = {(void *)bytes, size};                                       \
        int failed = (synchronous[fd] && sick(&metas_left)) || fails();                  \
        return wrote(fd, start_ns, (uint64_t)offset, &part, 1, failed ? -1 : REAL(name)(fd, bytes, size, offset)); \
    }
#define PWRITEV(name, off)                                                               \
    ssize_t name(int fd, const struct iovec *parts, int count, off offset) {             \
        LOCKED(fd, REAL(name)(fd, parts, count, offset))                                 \
        return wrote(fd, start_ns, (uint64_t)offset, parts, count, fails() ? -1 : REAL(name)(fd, parts, count, offset)); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

static int changed(uint8_t kind, int fd, uint64_t start_ns, uint64_t length, int failed) {
    if (!failed) record(kind, fd, start_ns, 0, length), maybe_die();
    pthread_mutex_unlock(&lock);
    return failed;
}

int ftruncate(int fd, off_t size) { LOCKED(fd, REAL(ftruncate)(fd, size)) return changed('T', fd, start_ns, (uint64_t)size, fails() ? -1 : REAL(ftruncate)(fd, size)); }
int ftruncate64(int fd, off64_t size) { LOCKED(fd, REAL(ftruncate64)(fd, size)) return changed('T', fd, start_ns, (uint64_t)size, fails() ? -1 : REAL(ftruncate64)(fd, size)); }
int fsync(int fd) { LOCKED(fd, REAL(fsync)(fd)) slow(); return changed('S', fd, start_ns, 0, sick(&syncs_left) || fails() ? -1 : REAL(fsync)(fd)); }
int fdatasync(int fd) { LOCKED(fd, REAL(fdatasync)(fd)) slow(); return changed('S', fd, start_ns, 0, sick(&syncs_left) || fails() ? -1 : REAL(fdatasync)(fd)); }

#define PREAD(name, off)                                                                 \
    ssize_t name(int fd, void *bytes, size_t size, off offset) {                         \
        if (is_watched(fd) && offset < unreadable_to && offset + (off)size > unreadable_from) { \
            errno = EIO;                                                                 \
            return -1;                                                                   \
        }                                                                                \
        return REAL(name)(fd, bytes, size, offset);                                      \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

/* A store written through a map cannot be followed from here: the player refuses such a log. */
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    void *map = REAL(mmap)(at, size, protection, flags, fd, offset);
    if ((protection & PROT_WRITE) && (flags & MAP_SHARED) && is_watched(fd)) {
        pthread_mutex_lock(&lock);
        record('M', fd, now(), (uint64_t)offset, size);
        pthread_mutex_unlock(&lock);
    }
    return map;
}

static int renamed(uint8_t kind, const char *from, const char *to, int failed, uint64_t start_ns) {
    char a[PATH_MAX];
    const char *name = to ? to : from;
    if (failed || log_fd < 0) return failed;
    if (name[0] == '/') snprintf(a, sizeof a, "%s", name);
    else if (!realpath(name, a)) return failed;
    if (!inside(a)) return failed;
    pthread_mutex_lock(&lock);
    size_t n = strlen(from), m = to ? strlen(to) + 1 : 0;
    struct record r = {.start_ns = start_ns, .end_ns = now(), .length = n + m, .kind = kind};
    append(&r, sizeof r);
    append(from, n);
    if (to) append("\n", 1), append(to, m - 1);
    pthread_mutex_unlock(&lock);
    return failed;
}

int rename(const char *from, const char *to) { uint64_t t = now(); return renamed('R', from, to, named_fails(to) ? -1 : REAL(rename)(from, to), t); }
int unlink(const char *path) { uint64_t t = now(); return renamed('U', path, NULL, named_fails(path) ? -1 : REAL(unlink)(path), t); }
