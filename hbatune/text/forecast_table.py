"""Print a forecast: the changes of a host by another kernel, as a table or a JSON document."""

from msgspec import Struct

from hbatune.operations.forecast import Forecast
from hbatune.plan.kernel_changes import Effect, KernelChange
from hbatune.settings.setting import Value
from hbatune.text.basic_output import format_count
from hbatune.text.plan_tables import fold_names, fold_rows
from hbatune.text.tables import EMPTY_CELL, Table, make_columns
from hbatune.text.terminal import print_line, show_table

_COLUMNS = make_columns("id TARGET | id ATTRIBUTE | value NOW | value THEN | reason EFFECT")

_EFFECTS = {
    Effect.LARGER_REQUESTS: "larger requests: fewer for sequential I/O, each takes longer",
    Effect.SMALLER_REQUESTS: "smaller requests: more of them for sequential I/O",
    Effect.MORE_READ_AHEAD: (
        "more read-ahead: faster sequential reads, more memory and wasted reads with random I/O"
    ),
    Effect.LESS_READ_AHEAD: "less read-ahead: slower sequential reads, less wasted memory",
    Effect.ASYNC_DEPTH_MOVED: "the file moves: rules with the old path have no effect",
    Effect.ASYNC_DEPTH_ADDED: "new: limits asynchronous requests, so reads find free requests",
    Effect.ASYNC_DEPTH_REMOVED: "this kernel has it only with mq-deadline",
    Effect.RESERVED_TAGS: "the driver reserves a tag, which the count includes",
    Effect.MERGES_CHANGED: "the driver's default changes: 0 merges requests, 2 does not",
    Effect.OPTIMAL_SIZE_CHANGED: "the drive reports no optimal size: 6.1 takes one block for it",
    Effect.IOSTATS_CHANGED: "I/O of this device is counted in diskstats only with 1",
    Effect.NO_QUEUE_SETTINGS: "the file is gone: this device has no requests of its own",
    Effect.TIMEOUT_ADDED: "new: sets the timeout of all namespaces of this controller",
    Effect.TIMEOUT_REMOVED: "the file is gone: each namespace keeps its own timeout",
    Effect.OPTION_ADDED: "new module option",
    Effect.OPTION_REMOVED: "the module has no such option: the kernel ignores and logs it",
    Effect.RENDERED_LOST: "set by hbatune, and ignored by this kernel's module",
    Effect.DRIVER_REMOVED: "this kernel has no such driver: the adapter's disks disappear",
    Effect.SETTING_LOST: "the active profile sets it, and this kernel does not have it",
    Effect.SETTING_REFUSED: "the active profile sets it, and this kernel refuses the value",
    Effect.UNKNOWN: "unknown: the snapshot lacks a file that the forecast needs",
}

_OPTIONS = {
    "ahci.mask_port_map": "ports that the driver ignores",
    "ahci.mask_port_ext": "ports that the driver ignores",
    "mpi3mr.max_sgl_entries": "segments of the largest request",
    "mpi3mr.threaded_isr_poll": "false completes commands in the interrupt, with less latency",
    "mpt3sas.command_retry_count": "attempts for a drive that is starting",
    "mpt3sas.issue_scsi_cmd_to_bringup_drive": "waits for drives that are starting",
    "nvme.quirks": "workarounds for drives, by their ids",
    "nvme_core.multipath_always_on": "a drive with one path becomes a map, too",
    "virtio_scsi.virtscsi_poll_queues": "queues with polled completions",
}


class ForecastRow(Struct, frozen=True):
    """One value that the other kernel changes; null if a kernel does not have it."""

    target: str
    id: str
    attribute: str
    now: Value | None
    then: Value | None
    effect: str


class ForecastDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `forecast`.

    ``then`` is the series of the other kernel, ``installed`` its release on this host if its
    modules were read. ``profile`` is the active profile.
    """

    schema: str = "hbatune.forecast/1"
    hostname: str
    kernel: str
    then: str
    installed: str | None
    profile: str | None
    rows: tuple[ForecastRow, ...]


def make_forecast_document(forecast: Forecast) -> ForecastDocument:
    """Return the JSON document of a forecast."""
    return ForecastDocument(
        hostname=forecast.hostname,
        kernel=forecast.kernel,
        then=forecast.then,
        installed=forecast.installed,
        profile=forecast.profile,
        rows=tuple(map(_make_row, forecast.changes)),
    )


def _make_row(change: KernelChange) -> ForecastRow:
    return ForecastRow(
        change.target,
        change.id,
        change.attribute,
        change.now,
        change.then,
        describe_effect(change),
    )


def describe_effect(change: KernelChange) -> str:
    """Return the meaning of a change in one clause."""
    text = _EFFECTS[change.effect]
    if change.effect is Effect.OPTION_ADDED and change.attribute in _OPTIONS:
        return f"{text}: {_OPTIONS[change.attribute]}"
    return text


def show_forecast(forecast: Forecast) -> None:
    """Print the changes; equal changes of many disks share one row."""
    table = Table(_COLUMNS)
    rows = map(_make_row, forecast.changes)
    for targets, row in fold_rows(rows, _get_content):
        values = [EMPTY_CELL if value is None else str(value) for value in (row.now, row.then)]
        table.rows.append([fold_names(targets), row.attribute, *values, row.effect])
    kernels = f"from {forecast.kernel} to {forecast.then}"
    if not forecast.changes:
        print_line(f"No changes of {forecast.hostname}'s storage {kernels}.")
        return
    show_table(table)
    print_line()
    changed = {change.target for change in forecast.changes}
    changes = format_count(len(table.rows), "change")
    print_line(f"{changes} of {format_count(len(changed), 'target')} {kernels}.")
    if forecast.installed is not None:
        print_line(f"Drivers and options are those of the installed kernel {forecast.installed}.")
    print_line("Only defaults change. hbatune sets the active profile's values again.")


def _get_content(row: ForecastRow) -> object:
    return (row.attribute, row.now, row.then, row.effect)
