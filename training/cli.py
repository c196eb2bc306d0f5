"""The `xreg` command: one sub-command per step, errors as one line with an exit code of their own.

Other packages bring commands of theirs (`xreg serve`) under the entry point group `xreg.commands`; each is loaded when
it is asked for.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import click

from core import __version__
from training.commands import gathering, learning, releasing


class _Commands(click.Group):
    """Our commands, and those of the entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *entry_points(group="xreg.commands").names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for elsewhere in entry_points(group="xreg.commands", name=cmd_name):
            command: click.Command = elsewhere.load()
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="xreg")
def main() -> None:
    """Extreme regression for dynamic search advertising.

    \b
    From click logs to a served release:
      xreg synth market                        made-up ads, queries and clicks to play with
      xreg ingest --events market/events.parquet --ads market/ads.csv --out clicks
      xreg refresh --data clicks --releases releases
      xreg ask "throne" --releases releases    which ads, with what probability?
      xreg releases --releases releases        what is there, what is served
      xreg serve --releases releases           answer over HTTP
      xreg rollback --releases releases        serve the one before again

    \b
    From matrices to answers:
      xreg make-data shop --labels 2000        made-up data to play with
      xreg train shop --out shop.model         train a model
      xreg evaluate shop.model shop            how good is it?
      xreg predict shop.model shop --show 3    what does it answer?
      xreg inspect shop.model                  what is inside?
      xreg labelwise shop.model shop --out best.parquet
                                               the best points of every label

    A data set of matrices is a directory with a train and a test part, or one file: the text formats of the Extreme
    Classification Repository, plain or gzipped, or scipy .npz pairs. Each direction of an ingested log is one.
    """


for command in (
    gathering.ingest,
    gathering.synth,
    releasing.ask,
    releasing.refresh,
    releasing.recalibrate,
    releasing.fill,
    releasing.publish,
    releasing.pull,
    releasing.rollback,
    releasing.releases,
    releasing.table,
    learning.train,
    learning.tune,
    learning.evaluate,
    learning.predict,
    learning.labelwise,
    learning.inspect,
    learning.make_data,
):
    main.add_command(command)

if __name__ == "__main__":
    main()
