/* One program for all attacks: `attack NAME ARGUMENT...`. */
#include "attack.h"

void attempt(const char *name, long result)
{
    if (result >= 0)
        printf("GAINED %s\n", name);
    else
        printf("refused %s: %s\n", name, strerror(errno));
    fflush(stdout);
}

void reached(const char *name, long result)
{
    int denied = errno == EPERM || errno == EACCES || errno == ENOSYS;
    if (result >= 0 || !denied)
        printf("GAINED %s (%s)\n", name, result >= 0 ? "done" : strerror(errno));
    else
        printf("refused %s: %s\n", name, strerror(errno));
    fflush(stdout);
}

void show(const char *what, int fd)
{
    char text[512];
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (size > 0) {
        text[size] = 0;
        printf("read by %s: %s\n", what, text);
    }
    fflush(stdout);
}

void nap(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

int exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int main(int argc, char **argv)
{
    const struct command *tables[] = {FILES, NETWORK, PROCESSES, KERNEL, RESOURCES};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t table = 0; argc > 1 && table < sizeof tables / sizeof *tables; table++)
        for (const struct command *command = tables[table]; command->name; command++)
            if (!strcmp(command->name, argv[1])) {
                printf("tried\n");
                fflush(stdout);
                return command->run(argc - 1, argv + 1);
            }
    fprintf(stderr, "no such attack\n");
    return 99;
}
