"""The kernel's surface: what no tool needs is not there to be attacked."""

from __future__ import annotations

from tests.escape.arena import Arena
from tests.escape.probe import Found, Mechanism, probe

CANARY_SETTING = "/proc/sys/kernel/printk_ratelimit_burst"
MASKED = ("/proc/keys", "/proc/kcore", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/kallsyms", "/tmp")


@probe("kernel", "make namespaces by unshare, clone and clone3, and with them fresh rights", compiled=True)
def new_namespaces(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("userns"))


@probe("kernel", "mount, remount, unmount and move what the root is made of", compiled=True)
def mounts(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("mounts", *MASKED))


@probe("kernel", "unmount what hides a file, or mount over what protects one", compiled=True)
def unmount_a_mask(arena: Arena) -> Found:
    hidden, protected = arena.project / ".env", arena.project / "src"
    done = arena.attack(
        "mounts",
        hidden,
        protected,
        write=[arena.project],
        read=[protected],
        hide=[hidden, arena.project / "secrets"],
    )
    return arena.nothing_gained(done)


@probe("kernel", "hold or regain a capability, change the user, turn no_new_privs off", compiled=True)
def capabilities(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("caps"))


@probe("kernel", "change settings in /proc/sys, /proc and /sys", compiled=True)
def settings(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("sysctl", CANARY_SETTING))


@probe("kernel", "read the kernel's memory, messages, symbols and keys")
def inner_files(arena: Arena) -> Found:
    done = arena.sh(
        "for f in kcore kmsg kallsyms keys key-users timer_list sched_debug slabinfo vmallocinfo kpageflags "
        "kpagecount sysrq-trigger; do head -c 16 /proc/$f | tr '\\0' . | grep -q . && echo GAINED $f; done; "
        "head -c 16 /sys/kernel/notes; ls /sys/kernel /sys/class/net && echo GAINED sys; dmesg | grep -q . "
        "&& echo GAINED dmesg"
    )
    return arena.nothing_gained(done)


@probe(
    "kernel", "load modules, kernels, swap, quotas, ports: what only the machine's owner does", compiled=True
)
def owners_calls(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("privileged"))


def surface(name: str, needs: Mechanism | None, tries: str) -> None:
    """Enter one probe for one call that must be out of reach."""

    def body(arena: Arena) -> Found:
        return arena.nothing_gained(arena.attack("surface", name))

    probe("kernel", tries, needs=needs, compiled=True, name=name.replace("_", "-"))(body)


for _name, _needs, _tries in (
    ("keyctl", "seccomp", "make a keyring (keyctl)"),
    ("add_key", "seccomp", "add a key"),
    ("request_key", "seccomp", "ask for a key, which may start a program of the machine"),
    ("userfaultfd", "seccomp", "stop the kernel in the middle of a copy (userfaultfd)"),
    ("perf_event_open", "seccomp", "measure (perf_event_open)"),
    ("bpf", "seccomp", "load a program into the kernel (bpf)"),
    ("ptrace", "seccomp", "trace a child of one's own"),
    ("io_uring", "seccomp", "queue calls past the filter (io_uring)"),
    ("io_setup", "seccomp", "take from the machine's number of asynchronous requests (io_setup)"),
    ("x32", "seccomp", "call by the x32 numbers, which a filter may not know"),
    ("int80", "seccomp", "call by the gate of 32-bit programs, which a filter may not know"),
    ("process_vm_readv", "seccomp", "read another process's memory by process_vm_readv"),
    ("mount", None, "call mount at all"),
    ("fsopen", None, "call fsopen at all"),
):
    surface(_name, _needs, _tries)  # type: ignore[arg-type]  # the table's words are mechanisms
