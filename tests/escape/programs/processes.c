/* Attacks on other processes, and ways not to end. */
#include "attack.h"
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/uio.h>

static void touch_process(pid_t pid)
{
    char byte[64];
    struct iovec local = {byte, sizeof byte}, remote = {(void *)0x400000, sizeof byte};
    struct rlimit limit = {64, 64};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    TRY("kill STOP", kill(pid, SIGSTOP));
    TRY("tgkill", syscall(SYS_tgkill, pid, pid, SIGTERM));
    TRY("kill group", kill(-pid, SIGTERM));
    int pidfd = syscall(NR_PIDFD_OPEN, pid, 0);
    TRY("pidfd_open", pidfd);
    TRY("pidfd_send_signal", syscall(NR_PIDFD_SEND_SIGNAL, pidfd, SIGTERM, NULL, 0));
    TRY("pidfd_getfd", syscall(NR_PIDFD_GETFD, pidfd, 0, 0));
    TRY("ptrace", ptrace(PTRACE_SEIZE, pid, NULL, NULL));
    TRY("process_vm_readv", process_vm_readv(pid, &local, 1, &remote, 1, 0));
    TRY("prlimit", prlimit(pid, RLIMIT_NOFILE, &limit, NULL));
    TRY("setpriority", setpriority(PRIO_PROCESS, pid, 15));
    TRY("sched_setaffinity", sched_setaffinity(pid, sizeof one, &one));
    TRY("ioprio_set", syscall(SYS_ioprio_set, 1, pid, 3 << 13));
    TRY("kcmp", syscall(SYS_kcmp, pid, getpid(), 1, 0, 0));
    int pipes[2];
    if (pipe(pipes) == 0) {
        fcntl(pipes[0], F_SETOWN, pid);
        fcntl(pipes[0], F_SETSIG, SIGTERM);
        fcntl(pipes[0], F_SETFL, O_ASYNC);
        if (write(pipes[1], "x", 1) != 1)
            printf("no signal by descriptor\n");
    }
}

/* touch PID...: do something to processes of the machine. */
static int touch(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        touch_process(atoi(argv[i]));
    return 0;
}

/* killall: signals to everything that a signal may go to. */
static int killall(int argc, char **argv)
{
    (void)argc, (void)argv;
    setpgid(0, 0);
    signal(SIGTERM, SIG_IGN);
    setpriority(PRIO_USER, getuid(), 17);
    TRY("kill parent", kill(getppid(), SIGTERM) == 0 ? -1 : -1);
    kill(1, SIGKILL);
    kill(1, SIGSTOP);
    kill(1, SIGTERM);
    kill(-1, SIGKILL); /* all but this process and pid 1 */
    kill(-1, SIGSTOP);
    nap(50);
    return 7;
}

/* init: have the process that watches over this one do or say something. */
static int init(int argc, char **argv)
{
    char path[64], byte[64] = "";
    struct iovec local = {byte, sizeof byte}, remote = {(void *)0x400000, sizeof byte};
    (void)argc, (void)argv;
    for (pid_t pid = 1; pid <= 2; pid++) {
        if (pid == getpid())
            continue;
        int pidfd = syscall(NR_PIDFD_OPEN, pid, 0);
        for (int fd = 0; fd < 64; fd++) {
            int got = syscall(NR_PIDFD_GETFD, pidfd, fd, 0);
            if (got >= 0) {
                TRY("pidfd_getfd of pid 1", 0);
                TRY("forged end", send(got, "exit 0", 6, MSG_NOSIGNAL | MSG_DONTWAIT));
            }
            snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
            got = open(path, O_RDWR | O_NONBLOCK);
            if (got >= 0)
                TRY(path, write(got, "exit 0", 6));
        }
        TRY("ptrace seize", ptrace(PTRACE_SEIZE, pid, NULL, NULL));
        TRY("ptrace attach", ptrace(PTRACE_ATTACH, pid, NULL, NULL));
        TRY("process_vm_readv", process_vm_readv(pid, &local, 1, &remote, 1, 0));
        TRY("process_vm_writev", process_vm_writev(pid, &local, 1, &remote, 1, 0));
        TRY("process_madvise", syscall(NR_PROCESS_MADVISE, pidfd, &remote, 1, 4, 0));
        for (const char *const *file = (const char *const[]){"mem", "environ", "maps", "root", "cwd", "exe", "stack",
                 "syscall", "auxv", "pagemap", "map_files", NULL}; *file; file++) {
            snprintf(path, sizeof path, "/proc/%d/%s", pid, *file);
            int fd = open(path, O_RDONLY);
            if (fd >= 0 && read(fd, byte, sizeof byte) > 0)
                TRY(path, 0);
        }
    }
    return 7;
}

static void deafen(void)
{
    for (int number = 1; number < 65; number++)
        signal(number, SIG_IGN);
}

/* deaf exit|stay MARKER: a family that neither listens nor leaves. */
static int deaf(int argc, char **argv)
{
    (void)argc;
    int stay = !strcmp(argv[1], "stay");
    deafen();
    for (int i = 0; i < 6; i++) {
        if (fork() != 0)
            continue;
        setsid();
        if (fork() != 0)
            _exit(0);
        if (i == 1)
            kill(getpid(), SIGSTOP);
        if (i == 2)
            prctl(PR_SET_PDEATHSIG, 0);
        if (i == 3 && vfork() == 0)
            for (;;)
                pause();
        if (i == 4)
            prctl(PR_SET_NAME, "[kworker/0:1]");
        for (int n = 0; n < 600; n++)
            nap(100);
        _exit(0);
    }
    nap(30);
    if (stay) {
        kill(1, SIGSTOP);
        kill(0, SIGSTOP);
        for (int n = 0; n < 600; n++)
            nap(100);
    }
    return 0;
}

/* zombies N: children that nobody asks after. */
static int zombies(int argc, char **argv)
{
    int made = 0;
    (void)argc;
    for (int i = 0; i < atoi(argv[1]); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (i % 2 && fork() == 0)
                _exit(0);
            _exit(0);
        }
        made += pid > 0;
    }
    printf("made %d\n", made);
    return 0;
}

/* sysv KEY QUEUE: memory and messages shared by number or name. */
static int sysv(int argc, char **argv)
{
    key_t key = atoi(argv[1]);
    struct { long type; char text[256]; } message;
    char text[8192];
    (void)argc;
    char *memory = shmat(shmget(key, 0, 0), NULL, 0);
    if (memory != (char *)-1)
        printf("GAINED shared memory: %.200s\n", memory);
    TRY("message queue", msgrcv(msgget(key, 0), &message, sizeof message.text, 0, IPC_NOWAIT));
    TRY("semaphore", semget(key, 0, 0));
    mqd_t queue = mq_open(argv[2], O_RDWR | O_NONBLOCK);
    TRY("posix queue", queue);
    if (queue != (mqd_t)-1 && mq_receive(queue, text, sizeof text, NULL) > 0)
        printf("GAINED message: %.200s\n", text);
    return 0;
}

/* tiocsti: type into the terminal of whoever started the server. */
static int tiocsti(int argc, char **argv)
{
    const char *paths[] = {"/dev/tty", "/dev/console", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2",
                           "/proc/1/fd/0", "/dev/pts/0", "/dev/pts/1", "/dev/pts/2"};
    (void)argc, (void)argv;
    for (int fd = 0; fd < 64; fd++)
        if (ioctl(fd, TIOCSTI, "X") == 0)
            printf("GAINED typing by %d\n", fd);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int fd = open(paths[i], O_RDWR | O_NONBLOCK);
        if (fd < 0)
            continue;
        ioctl(fd, TIOCSCTTY, 1);
        if (ioctl(fd, TIOCSTI, "X") == 0)
            printf("GAINED typing by %s\n", paths[i]);
    }
    return 0;
}

/* hostname NAME. */
static int hostname(int argc, char **argv)
{
    (void)argc;
    TRY("sethostname", sethostname(argv[1], strlen(argv[1])));
    TRY("setdomainname", setdomainname(argv[1], strlen(argv[1])));
    return 0;
}

/* setns: enter namespaces of others. */
static int join(int argc, char **argv)
{
    const char *kinds[] = {"mnt", "pid", "net", "ipc", "uts", "cgroup", "user", "time"};
    char path[64];
    for (int i = 0; i < 8; i++) {
        for (int who = 0; who < argc; who++) {
            snprintf(path, sizeof path, "/proc/%s/ns/%s", who ? argv[who] : "1", kinds[i]);
            int fd = open(path, O_RDONLY);
            TRY(path, fd < 0 ? -1 : setns(fd, 0));
        }
        snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
        TRY(path, setns(open(path, O_RDONLY), 0));
    }
    int pidfd = syscall(NR_PIDFD_OPEN, 1, 0);
    TRY("setns by pidfd", pidfd < 0 ? -1 : setns(pidfd, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID));
    return 0;
}

const struct command PROCESSES[] = {
    {"touch", touch}, {"killall", killall}, {"init", init}, {"deaf", deaf}, {"zombies", zombies}, {"sysv", sysv},
    {"tiocsti", tiocsti}, {"hostname", hostname}, {"setns", join}, {NULL, NULL},
};
