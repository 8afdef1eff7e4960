//! Runs a program that was migrated, or its version on kube: `migrated PROGRAM kube|listwatch URL WORKERS`.

fn main() -> anyhow::Result<()> {
    listwatch_peers::migrations::main()
}
