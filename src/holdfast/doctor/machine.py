"""The machine that the doctor runs on, which is often that of the workers."""

from __future__ import annotations

import platform
import sys
import zoneinfo
from collections.abc import Iterator

from holdfast.doctor.patient import Patient
from holdfast.domain.findings import Remark, info, ok, warning
from holdfast.runners import prctl

_A_ZONE_WITH_RULES = "Europe/Berlin"


def machine(patient: Patient) -> Iterator[Remark]:
    yield ok(f"Python {platform.python_version()} on {platform.system()} {platform.release()}")
    yield _system()
    yield _open_files(patient)


def _system() -> Remark:
    if sys.platform != "linux":
        return info(
            f"{platform.system()} has no subreaper",
            "Run workers of production on Linux: elsewhere a job's forgotten grandchildren can survive it.",
        )
    try:
        prctl.set_child_subreaper()
    except OSError as error:
        return warning(
            f"this kernel refuses to make a process the subreaper of its descendants ({error})",
            "Allow prctl(PR_SET_CHILD_SUBREAPER) in the container's seccomp profile: without it, what a job leaves"
            " behind may outlive it.",
        )
    return ok("the kernel lets a worker adopt what its jobs leave behind")


def _open_files(patient: Patient) -> Remark:
    try:
        import resource
    except ImportError:
        return info("this system tells no limit of open files")
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < patient.limits.open_files:
        return warning(
            f"a process may open {soft} files",
            f"Raise it to {patient.limits.open_files} or more (ulimit -n, LimitNOFILE= of systemd): a worker needs a"
            " few for every runner and every connection.",
        )
    return ok(f"a process may open {'any number of' if soft == resource.RLIM_INFINITY else soft} files")


def time_zones(_patient: Patient) -> Iterator[Remark]:
    try:
        zoneinfo.ZoneInfo(_A_ZONE_WITH_RULES)
    except zoneinfo.ZoneInfoNotFoundError:
        yield warning(
            "there is no time zone data: schedules in a zone other than UTC cannot be worked out",
            "Install the package tzdata, of the system or from the Python index.",
        )
        return
    yield ok(f"{len(zoneinfo.available_timezones())} time zones are known")
