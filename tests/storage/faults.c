/* A preloaded library that makes the storage below one folder fail, while the program runs.
 *
 * STORAGE_FAULTS_FOLDER   absolute path; only files below it are concerned.
 * STORAGE_FAULTS_CONTROL  a file that switches faults on: "CALLS ERRNO SKIP COUNT [PART]", e.g. "write,fsync 28 3 -1": of
 *                         these calls the first SKIP pass, the next COUNT (-1: all) fail with this errno (0: say yes, do
 *                         nothing; for fsync only). With PART only paths count that have it in them. Absent or empty: no
 *                         fault. It is read again whenever it was replaced.
 * STORAGE_FAULTS_TRACE    a file to which each call that the rule names is appended: "CALL passed|failed PATH".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { ino_t inode; struct timespec changed; char calls[128], part[128]; int error; long skip, count; } rule;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int below(const char *path) {
    const char *folder = getenv("STORAGE_FAULTS_FOLDER");
    size_t length = folder ? strlen(folder) : 0;
    return length && !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

/* Whether the path, from that folder (or of that open file), is below the folder of the faults; `whole` is it then. */
static int path_below(int folder, const char *path, char *whole) {
    char base[PATH_MAX], link[64];
    if (path[0] == '/') { snprintf(whole, 2 * PATH_MAX, "%s", path); return below(path); }
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return 0;
        base[n] = 0;
    }
    snprintf(whole, 2 * PATH_MAX, "%s/%s", base, path);
    return below(whole);
}

static void read_rule(void) {
    const char *path = getenv("STORAGE_FAULTS_CONTROL");
    struct stat now;
    if (!path || stat(path, &now) || now.st_size == 0) { memset(&rule, 0, sizeof rule); return; }
    /* Its number alone may be that of a rule before it. */
    if (now.st_ino == rule.inode && !memcmp(&now.st_mtim, &rule.changed, sizeof rule.changed)) return;
    FILE *file = fopen(path, "re");
    if (!file) return;
    memset(&rule, 0, sizeof rule);
    if (fscanf(file, "%127s %d %ld %ld %127s", rule.calls, &rule.error, &rule.skip, &rule.count, rule.part) >= 4) {
        rule.inode = now.st_ino;
        rule.changed = now.st_mtim;
    }
    fclose(file);
}

static int named(const char *call) {
    size_t length = strlen(call);
    for (const char *at = rule.calls; (at = strstr(at, call)); at += length)
        if ((at == rule.calls || at[-1] == ',') && (at[length] == ',' || !at[length])) return 1;
    return 0;
}

static void trace(const char *call, int failed, const char *path) {
    const char *file = getenv("STORAGE_FAULTS_TRACE");
    char line[2 * PATH_MAX + 64];
    if (!file) return;
    int to = REAL(open)(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (to < 0) return;
    int n = snprintf(line, sizeof line, "%s %s %s\n", call, failed ? "failed" : "passed", path);
    if (n > 0 && REAL(write)(to, line, n) < 0) { /* a line is missing then */ }
    close(to);
}

/* The errno with which this call on a path below the folder fails; -1 when it does not. */
static int fault(const char *call, int folder, const char *path) {
    char whole[2 * PATH_MAX];
    int error = -1, kept = errno;
    if (!path_below(folder, path, whole)) { errno = kept; return -1; }
    pthread_mutex_lock(&lock);
    read_rule();
    if (rule.inode && named(call) && (!rule.part[0] || strstr(whole, rule.part))) {
        if (rule.skip > 0) rule.skip--;
        else if (rule.count != 0) { if (rule.count > 0) rule.count--; error = rule.error; }
        trace(call, error >= 0, whole);
    }
    pthread_mutex_unlock(&lock);
    errno = kept;
    return error;
}

#define FAIL_AT(call, folder, path) do { int e_ = fault(call, folder, path); if (e_ > 0) { errno = e_; return -1; } } while (0)
#define FAIL(call, file) FAIL_AT(call, file, ".")

ssize_t write(int f, const void *b, size_t n) { FAIL("write", f); return REAL(write)(f, b, n); }
ssize_t pwrite(int f, const void *b, size_t n, off_t o) { FAIL("write", f); return REAL(pwrite)(f, b, n, o); }
ssize_t pwrite64(int f, const void *b, size_t n, off64_t o) { FAIL("write", f); return REAL(pwrite64)(f, b, n, o); }
ssize_t read(int f, void *b, size_t n) { FAIL("read", f); return REAL(read)(f, b, n); }
ssize_t pread(int f, void *b, size_t n, off_t o) { FAIL("read", f); return REAL(pread)(f, b, n, o); }
ssize_t pread64(int f, void *b, size_t n, off64_t o) { FAIL("read", f); return REAL(pread64)(f, b, n, o); }
ssize_t writev(int f, const struct iovec *v, int n) { FAIL("write", f); return REAL(writev)(f, v, n); }
int ftruncate(int f, off_t n) { FAIL("ftruncate", f); return REAL(ftruncate)(f, n); }
int ftruncate64(int f, off64_t n) { FAIL("ftruncate", f); return REAL(ftruncate64)(f, n); }
int posix_fallocate(int f, off_t o, off_t n) {
    int e = fault("write", f, ".");
    return e > 0 ? e : REAL(posix_fallocate)(f, o, n);
}

static int synced(int f, int (*real)(int)) {
    int e = fault("fsync", f, ".");
    if (e > 0) { errno = e; return -1; }
    return e == 0 ? 0 : real(f);
}
int fsync(int f) { return synced(f, REAL(fsync)); }
int fdatasync(int f) { return synced(f, REAL(fdatasync)); }

int rename(const char *a, const char *b) { FAIL_AT("rename", AT_FDCWD, b); return REAL(rename)(a, b); }
int renameat(int d, const char *a, int g, const char *b) { FAIL_AT("rename", g, b); return REAL(renameat)(d, a, g, b); }
int unlink(const char *p) { FAIL_AT("unlink", AT_FDCWD, p); return REAL(unlink)(p); }
int unlinkat(int d, const char *p, int flags) { FAIL_AT("unlink", d, p); return REAL(unlinkat)(d, p, flags); }
int rmdir(const char *p) { FAIL_AT("unlink", AT_FDCWD, p); return REAL(rmdir)(p); }
int link(const char *a, const char *b) { FAIL_AT("rename", AT_FDCWD, b); return REAL(link)(a, b); }
int linkat(int d, const char *a, int g, const char *b, int flags) { FAIL_AT("rename", g, b); return REAL(linkat)(d, a, g, b, flags); }
int mkdir(const char *p, mode_t m) { FAIL_AT("mkdir", AT_FDCWD, p); return REAL(mkdir)(p, m); }
int mkdirat(int d, const char *p, mode_t m) { FAIL_AT("mkdir", d, p); return REAL(mkdirat)(d, p, m); }

#define MODE(flags) mode_t m = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list l; va_start(l, flags); m = va_arg(l, mode_t); va_end(l); }
#define WRITES(flags) ((flags) & (O_CREAT | O_WRONLY | O_RDWR))
int open(const char *p, int flags, ...) { MODE(flags) if (WRITES(flags)) FAIL_AT("open", AT_FDCWD, p);; return REAL(open)(p, flags, m); }
int open64(const char *p, int flags, ...) { MODE(flags) if (WRITES(flags)) FAIL_AT("open", AT_FDCWD, p);; return REAL(open64)(p, flags, m); }
int openat(int d, const char *p, int flags, ...) { MODE(flags) if (WRITES(flags)) FAIL_AT("open", d, p);; return REAL(openat)(d, p, flags, m); }
int openat64(int d, const char *p, int flags, ...) { MODE(flags) if (WRITES(flags)) FAIL_AT("open", d, p);; return REAL(openat64)(d, p, flags, m); }
