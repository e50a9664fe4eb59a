//! Makes the stubs from the contract at each build: they cannot be older than it.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = "../../proto";
    println!("cargo:rerun-if-changed={proto}/popmq/v1/popmq.proto");
    let contract = protox::compile(["popmq/v1/popmq.proto"], [proto])?;
    tonic_build::configure().build_server(false).compile_fds(contract)?;
    Ok(())
}
