//! Follows Pods in a cache: `follower WAY URL [DIRECTORY]`.

fn main() -> anyhow::Result<()> {
    listwatch_peers::follower::main()
}
