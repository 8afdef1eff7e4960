//! Lists Pods with the system's allocator: `client WAY URL`.

fn main() -> anyhow::Result<()> {
    listwatch_peers::client::main()
}
