/* Counts what a process asks the disk to keep: fsync, fdatasync and msync(MS_SYNC) of all its threads and children.
 *
 *     LD_PRELOAD=fsyncs.so POPMQ_FSYNCS=FILE program
 *
 * FILE holds the count, 8 bytes in the machine's order, mapped by every process that counts into it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic unsigned long *count;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("POPMQ_FSYNCS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        count = page;
    close(file);
}

static void one_more(void) {
    if (count)
        atomic_fetch_add(count, 1);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    one_more();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fdatasync");
    one_more();
    return real(file);
}

int msync(void *at, size_t size, int flags) {
    static int (*real)(void *, size_t, int);
    if (!real)
        real = dlsym(RTLD_NEXT, "msync");
    if (flags & MS_SYNC)
        one_more();
    return real(at, size, flags);
}
