/* Attacks on the network. */
#include "attack.h"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>

#define MPTCP 262
#define VSOCK 40

struct vsock_address { unsigned short family, reserved; unsigned port, cid; unsigned char zero[4]; };

static void connect_inet(const char *name, const char *host, int port, int type, int protocol, int fast)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int v6 = strchr(host, ':') != NULL;
    void *address = v6 ? (void *)&six : (void *)&four;
    socklen_t size = v6 ? sizeof six : sizeof four;
    inet_pton(v6 ? AF_INET6 : AF_INET, host, v6 ? (void *)&six.sin6_addr : (void *)&four.sin_addr);
    int fd = socket(v6 ? AF_INET6 : AF_INET, type | SOCK_NONBLOCK, protocol);
    if (fd < 0) {
        TRY(name, -1);
        return;
    }
    if (fast || type == SOCK_DGRAM) {
        TRY(name, sendto(fd, "attack", 6, fast ? MSG_FASTOPEN : 0, address, size));
    } else {
        struct pollfd wait = {fd, POLLOUT, 0};
        int error = 0;
        socklen_t length = sizeof error;
        long done = connect(fd, address, size);
        if (done < 0 && errno == EINPROGRESS && poll(&wait, 1, 300) == 1) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
            errno = error;
            done = error ? -1 : 0;
        }
        TRY(name, done);
    }
    close(fd);
}

/* inet TCP UDP HOST...: every protocol to the canary listeners. */
static int inet(int argc, char **argv)
{
    int tcp = atoi(argv[1]), udp = atoi(argv[2]);
    for (int i = 3; i < argc; i++) {
        connect_inet("tcp", argv[i], tcp, SOCK_STREAM, 0, 0);
        connect_inet("mptcp", argv[i], tcp, SOCK_STREAM, MPTCP, 0);
        connect_inet("fast open", argv[i], tcp, SOCK_STREAM, 0, 1);
        connect_inet("udp", argv[i], udp, SOCK_DGRAM, 0, 0);
        connect_inet("dns", argv[i], 53, SOCK_DGRAM, 0, 0);
        connect_inet("udplite", argv[i], udp, SOCK_DGRAM, IPPROTO_UDPLITE, 0);
        connect_inet("sctp", argv[i], tcp, SOCK_STREAM, IPPROTO_SCTP, 0);
    }
    return 0;
}

/* unix abstract|path NAME: sockets of this machine. */
static int unix_sockets(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int abstract = !strcmp(argv[1], "abstract"), types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    (void)argc;
    strncpy(address.sun_path + abstract, argv[2], sizeof address.sun_path - 2);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + abstract + strlen(argv[2]) + !abstract;
    for (int i = 0; i < 3; i++) {
        int fd = socket(AF_UNIX, types[i], 0);
        if (fd < 0 || connect(fd, (void *)&address, size) != 0) {
            TRY("connect", -1);
            continue;
        }
        printf("GAINED connect\n");
        TRY("send", send(fd, "attack", 6, MSG_NOSIGNAL));
        union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(int))]; } control;
        char byte[16];
        struct iovec part = {byte, sizeof byte};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                                 .msg_controllen = sizeof control};
        struct pollfd wait = {fd, POLLIN, 0};
        if (poll(&wait, 1, 300) == 1 && recvmsg(fd, &message, 0) >= 0 && CMSG_FIRSTHDR(&message)) {
            int got;
            memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
            show("passed descriptor", got);
        }
    }
    return 0;
}

/* raw: packets of one's own making. */
static int raw(int argc, char **argv)
{
    (void)argc, (void)argv;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    struct icmphdr echo = {.type = ICMP_ECHO};
    TRY("raw icmp", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
    TRY("raw", socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
    TRY("raw 6", socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6));
    TRY("packet", socket(AF_PACKET, SOCK_RAW, htons(3)));
    TRY("packet datagram", socket(AF_PACKET, SOCK_DGRAM, htons(3)));
    int ping = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
    TRY("ping", ping < 0 ? -1 : sendto(ping, &echo, sizeof echo, 0, (void *)&to, sizeof to));
    return 0;
}

/* links: ask the kernel for its network interfaces and addresses, print their names. */
static int links(int argc, char **argv)
{
    struct { struct nlmsghdr head; struct rtgenmsg body; } ask = {
        .head = {sizeof ask, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, .body = {AF_UNSPEC}};
    static char answer[65536];
    (void)argc, (void)argv;
    struct if_nameindex *list = if_nameindex();
    for (struct if_nameindex *item = list; item && item->if_index; item++)
        printf("interface %s\n", item->if_name);
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &ask, sizeof ask, 0) < 0)
        return 0;
    ssize_t size = recv(fd, answer, sizeof answer, 0);
    for (ssize_t i = 0; i < size; i++)
        putchar(answer[i] >= ' ' && answer[i] < 127 ? answer[i] : '.');
    putchar('\n');
    return 0;
}

/* families: every address family but those that a confined network may use. */
static int families(int argc, char **argv)
{
    char name[64];
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
    (void)argc, (void)argv;
    for (int family = 3; family < 47; family++)
        for (int i = 0; i < 4; i++) {
            if (family == AF_INET6 || family == AF_NETLINK || family == VSOCK)
                continue;
            int fd = socket(family, types[i], 0);
            if (fd >= 0) {
                snprintf(name, sizeof name, "family %d type %d", family, types[i]);
                TRY(name, fd);
                close(fd);
            }
        }
    return 0;
}

/* netlink: talk to the kernel's own protocols. */
static int netlink(int argc, char **argv)
{
    char name[64];
    (void)argc, (void)argv;
    for (int protocol = 0; protocol < 23; protocol++) {
        int fd = socket(AF_NETLINK, SOCK_RAW, protocol);
        if (fd >= 0) {
            snprintf(name, sizeof name, "netlink %d", protocol);
            TRY(name, fd);
        }
    }
    return 0;
}

/* vsock PORT: past the network of this machine to the one that it runs on. */
static int vsock(int argc, char **argv)
{
    unsigned cids[] = {1, 2, 0xffffffff};
    (void)argc;
    for (int i = 0; i < 3; i++) {
        int fd = socket(VSOCK, SOCK_STREAM | SOCK_NONBLOCK, 0);
        TRY("socket", fd);
        struct vsock_address to = {.family = VSOCK, .port = atoi(argv[1]), .cid = cids[i]};
        if (fd >= 0)
            TRY("connect", connect(fd, (void *)&to, sizeof to));
        if (fd >= 0)
            TRY("bind", bind(fd, (void *)&(struct vsock_address){.family = VSOCK, .port = ~0u, .cid = ~0u}, sizeof to));
    }
    return 0;
}

/* listen PORT NAME: be reached instead of reaching. */
static int serve(int argc, char **argv)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int tcp = socket(AF_INET, SOCK_STREAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0), one = 1;
    (void)argc;
    strncpy(name.sun_path + 1, argv[2], sizeof name.sun_path - 2);
    setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(tcp, (void *)&any, sizeof any) == 0)
        listen(tcp, 5);
    if (bind(local, (void *)&name, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(argv[2])) == 0)
        listen(local, 5);
    printf("listening\n");
    struct pollfd wait[2] = {{tcp, POLLIN, 0}, {local, POLLIN, 0}};
    if (poll(wait, 2, 1200) > 0)
        printf("GAINED a caller\n");
    return 0;
}

/* ifup: make the empty network a full one. */
static int ifup(int argc, char **argv)
{
    struct ifreq request = {.ifr_name = "lo"};
    (void)argc, (void)argv;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    request.ifr_flags = IFF_UP;
    TRY("lo up", ioctl(fd, SIOCSIFFLAGS, &request));
    strcpy(request.ifr_name, "dummy7");
    TRY("address", ioctl(fd, SIOCSIFADDR, &request));
    return 0;
}

const struct command NETWORK[] = {
    {"inet", inet}, {"unix", unix_sockets}, {"raw", raw}, {"interfaces", links}, {"families", families},
    {"netlink", netlink}, {"vsock", vsock}, {"listen", serve}, {"ifup", ifup}, {NULL, NULL},
};
