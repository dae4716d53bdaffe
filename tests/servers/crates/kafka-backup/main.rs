//! kafka-backup's engine from its library, called as the library's README shows: `kafka-backup backup|restore CONFIG`.
use kafka_backup_core::{Config, RestoreEngine, backup::BackupEngine};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (config, _) = Config::from_yaml_with_warnings(&std::fs::read_to_string(&arguments[2])?)?;
    match arguments[1].as_str() {
        "backup" => BackupEngine::new(config).await?.run().await?,
        _ => drop(RestoreEngine::new(config)?.run().await?),
    }
    Ok(())
}
