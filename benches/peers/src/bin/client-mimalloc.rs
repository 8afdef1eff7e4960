//! Lists Pods with mimalloc: `client-mimalloc WAY URL`.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    listwatch_peers::client::main()
}
