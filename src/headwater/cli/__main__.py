"""`python -m headwater.cli`, for a process that knows its interpreter but not its PATH."""

from headwater.cli import main

main(prog_name="headwater")
