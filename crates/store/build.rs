//! The migrations are embedded: a new file among them must rebuild the package.

fn main() {
    // The only way in which a build script can say anything is its standard output.
    #[allow(clippy::print_stdout)]
    {
        println!("cargo::rerun-if-changed=../../migrations");
    }
}
