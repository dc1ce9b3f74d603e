//! Skills: files, catalogue, argument declarations, built-in handlers, runner.
