//! `listwatch get -w` prints what kubectl of the same release prints of the same changes.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use listwatch_e2e::{Result, Server, bin};

use crate::get::{command, mask_ages, words};

const PORT: u16 = 17123;

/// How long a command may take to print a change.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Arguments of both commands, and how often the name of the last object is printed.
const CASES: &[(&str, usize)] = &[
    ("cm -w", 2),
    ("cm first -w", 0),
    ("cm/first -w --show-kind", 0),
    ("cm -w --output-watch-events", 2),
    ("cm -A -w --output-watch-events --show-labels -L step", 2),
    ("cm -w --no-headers --show-labels", 2),
    ("cm -w -o wide", 2),
    ("cm -w -o name", 2),
    ("cm -w -o name --output-watch-events", 2),
    ("cm -w -o json", 2),
    ("cm first -w -o json", 0),
    ("cm -w -o json --output-watch-events", 2),
    ("cm -w -o yaml", 2),
    ("cm -w -o yaml --output-watch-events", 2),
    ("cm -w -o jsonpath='{.metadata.name}{\"\\n\"}'", 2),
    ("cm -w -o jsonpath='{.type} {.object.metadata.name}{\"\\n\"}' --output-watch-events", 2),
    ("cm -w -o custom-columns=N:.metadata.name,L:.metadata.labels", 2),
    ("cm -w -o custom-columns=T:.type,N:.object.metadata.name --output-watch-events", 2),
    ("cm -w --sort-by .metadata.name", 2),
    ("cm -w -l app=first", 0),
    ("gadgets -w", 0),
];

/// The object that is created and deleted.
const LAST: &str = "zz-created";

const OBJECTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: first, labels: {app: first}}
data: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: another-with-a-longer-name}
"#;

#[test]
fn prints_the_changes_that_kubectl_prints() -> Result<()> {
    let server = Server::start(PORT, &[])?;
    server.apply(OBJECTS)?;
    let wrong: Vec<_> = CASES.iter().filter_map(|(case, last)| compare(&server, case, *last).err()).collect();
    let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// Starts both commands, changes objects once both have printed the first ones, and compares what they print.
fn compare(server: &Server, case: &str, last: usize) -> Result<()> {
    let outputs = ["kubectl", "listwatch"].map(|name| server.dir().join(format!("{name}.out")));
    let programs = [bin("kubectl"), command()?];
    let mut children = Vec::new();
    for (program, output) in programs.iter().zip(&outputs) {
        let mut command = Command::new(program);
        command.arg("get").args(words(case)).arg("--kubeconfig").arg(server.dir().join("kubeconfig"));
        children.push(Running(command.stdout(File::create(output)?).stderr(Stdio::null()).spawn()?));
    }
    let is_unknown = case.starts_with("gadgets");
    if !is_unknown {
        wait_until(&outputs, |text| !text.is_empty())?;
    }
    for args in [
        &["label", "cm", "first", "step=1", "--overwrite"][..],
        &["label", "cm", "first", "step-"],
        &["create", "cm", LAST],
        &["delete", "cm", LAST],
    ] {
        server.kubectl(args)?;
    }
    match (is_unknown, last) {
        (true, _) => wait_until_ended(&mut children)?,
        // The second change of the label is the last that is printed.
        (false, 0) => wait_until(&outputs, |text| {
            let mark = if case.contains("-o json") { "resourceVersion" } else { "first" };
            text.matches(mark).count() >= 3 && text.ends_with('\n')
        })?,
        (false, count) => {
            wait_until(&outputs, |text| text.matches(LAST).count() >= count && text.ends_with('\n'))?;
        }
    }
    for child in &mut children {
        child.0.kill()?;
        child.0.wait()?;
    }
    let [kubectl, listwatch] = outputs.map(|output| lines(&output, case));
    let (kubectl, listwatch) = (kubectl?, listwatch?);
    if kubectl == listwatch {
        return Ok(());
    }
    let different = kubectl.iter().zip(&listwatch).find(|(expected, printed)| expected != printed);
    Err(format!("get {case}: {} and {} lines, first {different:?}", kubectl.len(), listwatch.len()).into())
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn wait_until(outputs: &[std::path::PathBuf], holds: impl Fn(&str) -> bool) -> Result<()> {
    let mut waited = Duration::ZERO;
    while !outputs.iter().all(|output| fs::read_to_string(output).is_ok_and(|text| holds(&text))) {
        if waited > PATIENCE {
            let texts = outputs.iter().map(|output| fs::read_to_string(output).unwrap_or_default());
            return Err(format!("not printed in time: {:?}", texts.collect::<Vec<_>>()).into());
        }
        sleep(POLL);
        waited += POLL;
    }
    Ok(())
}

fn wait_until_ended(children: &mut [Running]) -> Result<()> {
    let mut codes = Vec::new();
    for child in children {
        codes.push(child.0.wait()?.code());
    }
    if codes == [Some(1); 2] { Ok(()) } else { Err(format!("exit codes {codes:?}").into()) }
}

fn lines(output: &Path, case: &str) -> Result<Vec<String>> {
    let is_table = !case.contains("-o ") || case.contains("-o wide");
    let text = fs::read_to_string(output)?;
    Ok(text.lines().map(|line| if is_table { mask_ages(line) } else { line.to_owned() }).collect())
}
