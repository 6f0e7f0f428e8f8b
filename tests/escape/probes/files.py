"""Files outside of the grants, and read-only ones inside."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from pathlib import Path

from tests.escape.arena import Arena, eventually
from tests.escape.probe import Found, Outcome, probe


@probe("files", "read a file by its absolute path, and by every root that /proc shows")
def absolute_path(arena: Arena) -> Found:
    c = arena.canary
    return arena.token_kept(
        arena.sh(
            f"cat {c} /proc/self/root{c} /proc/1/root{c} /proc/$PPID/root{c} /proc/thread-self/root{c} "
            f"/proc/self/cwd/../..{c} /proc/*/root{c} /proc/*/cwd{c} /.old{c} /oldroot{c} /.toolcrib-old{c}"
        )
    )


@probe("files", "climb out of a grant by .. in every spelling")
def dots(arena: Arena) -> Found:
    return arena.token_kept(
        arena.sh(
            "cat ../outside/canary ./../outside/canary src/../../outside/canary src//..//..//outside/canary "
            "/proc/self/cwd/../outside/canary; cd src/deep; cat ../../../outside/canary; "
            "cd ../..; cd ..; cat outside/canary",
            cwd=str(arena.project),
            write=[arena.project],
        )
    )


@probe("files", "read through symbolic links, one made by the tool and one that was there")
def symbolic_links(arena: Arena) -> Found:
    (arena.project / "planted").symlink_to(arena.outside)
    (arena.project / "planted-file").symlink_to(arena.canary)
    return arena.token_kept(
        arena.sh(
            f"ln -s {arena.canary} made; ln -s ../outside made-too; ln -s /proc/self/root r; ln -s "
            f"/proc/1/root s; "
            f"cat made made-too/canary planted/canary planted-file r{arena.canary} s{arena.canary}",
            cwd=str(arena.project),
            write=[arena.project],
        )
    )


@probe(
    "files",
    "give an outside file a second name in a grant (link, linkat by descriptor, rename)",
    compiled=True,
)
def hard_links(arena: Arena) -> Found:
    before = arena.snapshot()
    done = arena.attack("links", arena.canary, arena.project, write=[arena.project])
    return arena.found(done, arena.token in done.text or arena.changes(before))


@probe("files", "link a read-only file into a writable grant and write to it there", compiled=True)
def link_from_read_to_write(arena: Arena) -> Found:
    source = arena.project / "src"
    before = arena.snapshot(source)
    done = arena.attack(
        "links", source / "file", arena.project / "scripts", read=[source], write=[arena.project / "scripts"]
    )
    changed = arena.changes(before, source)
    return arena.found(done, changed, changed)


@probe("files", "open files by handle, past every folder", compiled=True)
def file_handles(arena: Arena) -> Found:
    done = arena.attack("handle", arena.project, arena.canary, write=[arena.project])
    return arena.nothing_gained(done) if arena.token not in done.text else arena.token_kept(done)


@probe("files", "find descriptors of the server's files and folders left open", compiled=True)
def inherited_descriptors(arena: Arena) -> Found:
    with arena.canary.open() as file:
        folder = os.open(arena.outside, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for fd in (folder, file.fileno()):
                os.set_inheritable(fd, True)
            done = arena.attack("inherited", "canary")
        finally:
            os.close(folder)
    return arena.nothing_gained(done)


@probe("files", "leave by chroot and a folder kept open", compiled=True)
def chroot_escape(arena: Arena) -> Found:
    done = arena.attack("chroot", arena.canary)
    gained = [line for line in done.text.splitlines() if line.startswith("GAINED chroot")]
    return arena.found(done, gained or arena.token in done.text)


@probe("files", "write to, make, move and remove things outside of every grant")
def outside_writes(arena: Arena) -> Found:
    before = arena.snapshot()
    out = arena.outside
    done = arena.sh(
        f"echo evil > {out}/canary; echo evil >> {out}/canary; touch {out}/new; mkdir {out}/dir; rm -f "
        f"{out}/canary; "
        f"mv {out}/canary {out}/moved; cp /etc/passwd {out}/; ln -s x {out}/link; mv {out} {out}-moved; rm "
        f"-rf {out}; "
        f"cd ../outside && echo evil > canary; echo evil > ../outside/canary; mkdir -p {out} && echo x > "
        f"{out}/canary",
        cwd=str(arena.project),
        write=[arena.project],
    )
    changed = arena.changes(before)
    return arena.found(done, changed, changed)


@probe("files", "change mode, owner, times and attributes of an outside file", compiled=True)
def outside_metadata(arena: Arena) -> Found:
    before = arena.snapshot()
    done = arena.attack("metadata", arena.canary, write=[arena.project])
    changed = arena.changes(before)
    return arena.found(done, changed, changed)


@probe("files", "learn whether an outside file exists and how large it is", compiled=True)
def outside_is_invisible(arena: Arena) -> Found:
    size = 10_000 + int.from_bytes(os.urandom(2), "big")
    arena.canary.write_bytes(b"x" * size)
    done = arena.attack("stat", arena.canary)
    return arena.found(done, f"size {size}" in done.text or "GAINED" in done.text)


@probe("files", "list folders of the machine: home, /var, /run, /sys, other projects")
def machine_folders(arena: Arena) -> Found:
    done = arena.sh(
        "ls /root /home /var /run /sys /boot /opt /srv /mnt /media /etc/ssl/private 2>/dev/null; cat "
        "/etc/shadow"
    )
    return arena.found(done, done.stdout.strip() != b"tried")


@probe("files", "change a read-only grant in any of thirty ways", compiled=True)
def read_grant(arena: Arena) -> Found:
    source = arena.project / "src"
    before = arena.snapshot(source)
    done = arena.attack("modify", source, source / "file", read=[source])
    changed = arena.changes(before, source)
    return arena.found(done, changed, changed)


@probe("files", "change a read-only folder inside a writable one", compiled=True)
def read_inside_write(arena: Arena) -> Found:
    source = arena.project / "src"
    before = arena.snapshot(source)
    done = arena.attack("modify", source, source / "file", read=[source], write=[arena.project])
    arena.sh(
        "mv src src2; mv src/file file; mkdir x; mv x src/x; rm -rf src; ln -sfn scripts src; chmod 777 src",
        cwd=str(arena.project),
        read=[source],
        write=[arena.project],
    )
    changed = arena.changes(before, source)
    return arena.found(done, changed, changed)


@probe("files", "move a folder away from under a protected file and make it anew")
def protected_parent_moved(arena: Arena) -> Found:
    protected = arena.project / "src/deep/file"
    before = protected.read_bytes()
    done = arena.sh(
        "mv src/deep src/old; mkdir src/deep; echo evil > src/deep/file; mv src old; mkdir -p src/deep; "
        "echo evil > src/deep/file; rm -rf src; cp /etc/passwd src/deep/file; chmod 777 src/deep/file; "
        "ln -f scripts src/deep/file; mv -T scripts src/deep; rmdir src/deep",
        cwd=str(arena.project),
        write=[arena.project],
        protect=[protected],
    )
    return arena.found(done, not protected.is_file() or protected.read_bytes() != before)


@probe("files", "read a hidden file by every other name, by moving it, by unhiding it")
def hidden_file(arena: Arena) -> Found:
    done = arena.sh(
        "cat .env ./.env src/../.env .env/ /proc/self/cwd/.env .ENV .Env; ln .env a; cat a; ln -s .env b; "
        "cat b; "
        "mv .env c; cat c; cp .env d; cat d; chmod 666 .env; cat .env; tar cf - . 2>/dev/null; grep -r "
        "token- .; "
        "umount .env; cat .env; dd if=.env; rm -f .env; (cd ..; cat project/.env); cat secrets/key; ls -la "
        "secrets; "
        "mv secrets s; cat s/key; cd secrets && cat key",
        cwd=str(arena.project),
        write=[arena.project],
        hide=[arena.project / ".env", arena.project / "secrets", arena.project / ".toolcrib/state.db"],
    )
    return arena.token_kept(done)


@probe("files", "read a hidden file while it is granted a second way, by a link to it")
def hidden_behind_a_link(arena: Arena) -> Found:
    (arena.project / "env-link").symlink_to("secrets/key")
    done = arena.sh(
        "cat env-link secrets/key",
        cwd=str(arena.project),
        read=[arena.project],
        hide=[arena.project / "env-link", arena.project / ".env", arena.project / ".toolcrib"],
    )
    return arena.token_kept(done)


@probe("files", "leave a set-user-id or set-group-id file behind", needs="seccomp", compiled=True)
def setuid_files(arena: Arena) -> Found:
    done = arena.attack("setuid", arena.project, write=[arena.project])
    left = [
        path.name
        for path in arena.project.rglob("*")
        if path.is_file() and path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    ]
    return arena.found(done, left, " ".join(left))


@probe("files", "leave a file with capabilities behind", compiled=True)
def file_capabilities(arena: Arena) -> Found:
    done = arena.attack("filecaps", arena.project, write=[arena.project])
    capable = arena.project / "capable"
    names = os.listxattr(capable) if capable.exists() else []
    return arena.found(done, names, " ".join(names))


@probe("files", "make device nodes in a grant and in /tmp", compiled=True)
def device_nodes(arena: Arena) -> Found:
    done = arena.attack("device", arena.project, write=[arena.project])
    node = arena.project / "kept-node"
    return arena.nothing_gained(done) if not node.exists() else arena.found(done, True, "kept-node")


@probe("files", "open the machine's devices and change /dev", compiled=True)
def machine_devices(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("devices"))


@probe("files", "find what another call left in /tmp or /dev/shm, or leave something on the machine")
def private_tmp(arena: Arena) -> Found:
    mark = f"mark-{arena.token}"
    arena.sh(
        f"echo {arena.token} > /tmp/{mark}; echo {arena.token} > /dev/shm/{mark}; mkfifo /tmp/{mark}-pipe"
    )
    done = arena.sh(f"cat /tmp/{mark} /dev/shm/{mark}; ls /tmp /dev/shm")
    left = [path for folder in ("/tmp", "/dev/shm") for path in Path(folder).glob(f"{mark}*")]
    for path in left:
        path.unlink()
    return arena.found(done, left or arena.token in done.stdout.decode().replace(mark, ""))


@probe("files", "change the system's own files", contained=True)
def system_files(arena: Arena) -> Found:
    name = f"escape-{arena.token}"
    places = ("/", "/usr/", "/usr/bin/", "/etc/", "/bin/", "/lib/", "/proc/", "/dev/", "/usr/lib/")
    done = arena.sh(
        "for p in {}; do touch ${{p}}{}; mkdir ${{p}}{}-d; done".format(" ".join(places), name, name)
    )
    left = [place for place in places if any(Path(place).glob(f"{name}*"))]
    return arena.found(done, left, " ".join(left))


@probe("files", "climb out of a folder that somebody moves out of the grant meanwhile", compiled=True)
def moved_out_of_the_grant(arena: Arena) -> Found:
    inner = arena.project / "src/deep"
    ready, go = arena.project / "src/ready", arena.project / "src/go"
    with arena.meanwhile(
        lambda: arena.attack("moved", inner, ready, go, write=[arena.project / "src"])
    ) as found:
        if eventually(ready.exists):
            inner.rename(arena.project / "elsewhere")
            go.touch()
    return arena.token_kept(found[0])


@probe("files", "have a grant replaced by a link out while the sandbox is being built")
def grant_swapped_at_launch(arena: Arena) -> Found:
    grant, link = arena.project / "swapped", arena.project / "link"
    grant.mkdir()
    (grant / "canary").write_text("harmless\n")
    link.symlink_to(arena.outside)
    stop = threading.Event()

    def swap() -> None:
        spare = arena.project / "spare"
        while not stop.is_set():
            for one, other in ((grant, spare), (link, grant), (grant, link), (spare, grant)):
                one.rename(other)

    thread = threading.Thread(target=swap)
    thread.start()
    ran, last = 0, None
    end = time.monotonic() + 0.6
    try:
        while time.monotonic() < end:
            last = arena.sh(f"cat {grant}/canary", read=[grant])
            ran += not last.refused
            if arena.token in last.text:
                return arena.token_kept(last)
    finally:
        stop.set()
        thread.join()
    assert last is not None
    said = f"tried; {ran} launches went through: {last.refused or last.text}"
    return Found(Outcome.BLOCKED if ran or last.refused else Outcome.NOT_RUN, said[:300], arena.report)


@probe("files", "have one tool swap a folder that another tool is being granted", compiled=True)
def grant_swapped_by_a_tool(arena: Arena) -> Found:
    grant, link = arena.project / "src/deep", arena.project / "src/link"
    (grant / "canary").write_text("harmless\n")
    link.symlink_to("../../outside")
    ran, seen = 0, None
    with arena.meanwhile(lambda: arena.attack("swap", grant, link, 700, write=[arena.project])) as attacker:
        end = time.monotonic() + 0.6
        while time.monotonic() < end and seen is None:
            done = arena.sh(f"cat {grant}/canary", read=[grant])
            ran += 1
            if arena.token in done.text:
                seen = done
    if seen is not None:
        return arena.token_kept(seen)
    return arena.found(attacker[0], False, f"{attacker[0].text.strip()}, {ran} launches")


@probe("files", "make a chain of folders longer than any path, and climb from its end", compiled=True)
def deep_chain(arena: Arena) -> Found:
    before = arena.snapshot()
    deep = arena.project / "deep"
    deep.mkdir()
    done = arena.attack("deep", deep, 300, write=[deep])
    escaped = arena.token in done.text or arena.changes(before)
    after = arena.sh("true")
    # rmtree walks by descriptor, so it copes with what no path can name.
    shutil.rmtree(deep)
    return arena.found(done, escaped or "tried" not in after.text)


@probe("files", "be granted the root, /proc, /sys, /dev, a link or a path with .. in it", ours_only=True)
def grants_that_mean_more(arena: Arena) -> Found:
    link = arena.project / "grant-link"
    link.symlink_to(arena.outside)
    wrong = [
        "/",
        "/proc",
        "/proc/1/root",
        "/proc/self",
        "/sys",
        "/dev",
        "/dev/shm/..",
        str(link),
        f"{link}/canary",
    ]
    wrong += [
        f"{arena.project}/../outside",
        f"/{arena.outside}",
        "",
        "outside",
        f"{arena.outside}/",
        "/./etc",
    ]
    script = f"cat {arena.canary} {link}/canary /proc/1/root{arena.canary}; ls /proc/1/root/"
    tries = [arena.sh(script, read=[path]) for path in wrong]
    ran = [path for path, done in zip(wrong, tries, strict=True) if not done.refused]
    return arena.refused(tries[-1], ran)


@probe("files", "pass a path with a NUL, a lone surrogate or a line break as a grant", ours_only=True)
def odd_grants(arena: Arena) -> Found:
    odd = (
        f"{arena.project}\0{arena.outside}",
        f"{arena.project}/\ud800",
        f"{arena.project}\n{arena.outside}",
    )
    tries = [arena.sh(f"cat {arena.canary}", read=[path]) for path in odd]
    ran = [path for path, done in zip(odd, tries, strict=True) if not done.refused]
    return arena.refused(tries[-1], ran)
