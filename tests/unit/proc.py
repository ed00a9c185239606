"""A generated /proc, with the files that identify a process."""

from pathlib import Path

USER = "1000"
DOCKER = "/system.slice/docker-5f1c.scope"


def process(
    proc: Path,
    pid: int,
    name: str,
    *,
    uids: tuple[str, ...] = ("0", "0", "0", "0"),
    pids: tuple[int, ...] = (),
    cgroup: str | None = None,
    arguments: tuple[str, ...] = (),
    environment: tuple[str, ...] = (),
) -> Path:
    """Make a process: by default root's, on the host, in the cgroup of the unit of its name.

    ``uids`` are the real, effective, saved and file system ids; ``pids`` its numbers from the
    outermost PID namespace inwards.
    """
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    numbers = "\t".join(map(str, pids or (pid,)))
    (folder / "comm").write_text(f"{name}\n")
    (folder / "status").write_text(
        "Name:\t{}\nState:\tS (sleeping)\nUid:\t{}\nNSpid:\t{}\n".format(
            name, "\t".join(uids), numbers
        )
    )
    (folder / "cgroup").write_text(cgroup or f"0::/system.slice/{name}.service\n")
    (folder / "cmdline").write_text("\0".join(arguments or (name,)) + "\0")
    (folder / "environ").write_text("".join(f"{line}\0" for line in environment))
    return folder


def proc_of(folder: Path) -> Path:
    """Return a /proc in which systemd runs and nothing else."""
    process(folder, 1, "systemd", cgroup="0::/init.scope\n")
    return folder
