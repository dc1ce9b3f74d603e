//! The migrations are embedded in the program: a new migration file must rebuild the package.

fn main() {
    // Cargo reads the instructions of a build script from its standard output.
    #[allow(clippy::print_stdout)]
    {
        println!("cargo::rerun-if-changed=../../migrations");
    }
}
