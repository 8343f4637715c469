//! Tests of the command as users run it: exit codes, output, and JSON.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn penstock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_penstock"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The output of a good command.
fn stdout(arguments: &[&str]) -> String {
    let output = penstock(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    assert_eq!(errors, "", "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).unwrap()
}

/// The one line of a bad command, without the prefix of all such lines.
fn refused(arguments: &[&str], code: i32) -> String {
    let output = penstock(arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert_eq!(output.stdout, b"", "{arguments:?}");
    assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
    let error = errors.strip_prefix("penstock: error: ");
    error.expect("penstock: error: ").trim_end().to_owned()
}

#[test]
fn bad_input_gets_one_line_and_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let written = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let nonsense = written("nonsense.toml", "[nodes\nclients = = 3\n\u{1b}[31m");
    let other = written("other.toml", "name = \"other\"\n");
    let table: &[(&[&str], &str)] = &[
        (&["simulate"], "unrecognized subcommand 'simulate'"),
        (
            &["sim", "run", "--patern", "rb"],
            "unexpected argument '--patern'",
        ),
        (
            &["sim", "run", "--pattern"],
            "a value is required for '--pattern",
        ),
        (
            &["sim", "run", "--preset", "tr95"],
            "preset tr95: there is none",
        ),
        (
            &["sim", "run", "--preset", &nonsense],
            "nonsense.toml: line 1",
        ),
        (&["sim", "run", "--preset", &other], "other.toml"),
        (
            &["sim", "dickens-thakur", "--preset", "tr94"],
            "preset tr94 is none of the paper's machines",
        ),
        (
            &["sim", "dickens-thakur", "--figure", "8"],
            "there is no figure 8",
        ),
        (&["sim", "panda", "--figure", "2"], "there is no figure 2"),
        (
            &["sim", "panda", "--preset", "tr94"],
            "preset tr94 is not the paper's machine",
        ),
        (&["sim", "vesta", "--figure", "15"], "there is no figure 15"),
        (
            &["sim", "vesta", "--preset", "tr94"],
            "preset tr94 is not the paper's machine",
        ),
        (&["sim", "run", "--pattern", "rx"], "'rx' is not a pattern"),
        (&["sim", "run", "--pattern", "wa"], "'wa' cannot be"),
        (&["sim", "run", "--pattern", "r\nb"], "is not a pattern"),
        (
            &["sim", "run", "--layout", "heap"],
            "there is no layout 'heap'",
        ),
        (
            &["sim", "run", "--method", "3pio"],
            "there is no method '3pio'",
        ),
        (&["sim", "run", "--record", "7"], "records of 7 bytes"),
        (
            &["sim", "run", "--record", "0"],
            "the size of a record is 0",
        ),
        (&["sim", "run", "--record", "-8"], "'-8'"),
        (
            &["sim", "run", "--record", "much"],
            "invalid value 'much' for '--record",
        ),
        (
            &[
                "sim",
                "run",
                "--pattern",
                "rbb",
                "--file-mb",
                "7",
                "--record",
                "1048576",
            ],
            "7 records do not fill a matrix of 2 columns",
        ),
        (&["sim", "run", "--trials", "0"], "--trials is 0"),
        (&["sim", "run", "--jobs", "0"], "--jobs is 0"),
        (&["sim", "run", "--clients", "0"], "nodes.clients is 0"),
        (
            &["sim", "run", "--clients", "21"],
            "more than the 36 places of the torus",
        ),
        (&["sim", "run", "--disks", "0"], "nodes.disks is 0"),
        (&["sim", "run", "--file-mb", "0"], "file.bytes is 0"),
        (&["sim", "run", "--file-mb", "99999999999999"], "--file-mb"),
        (
            &["sim", "run", "--network", "magic"],
            "[possible values: exact, stochastic]",
        ),
        (
            &[
                "sim",
                "run",
                "--preset",
                "nvme-server",
                "--network",
                "exact",
            ],
            "--network is for",
        ),
        (
            &["sim", "run", "--seed", "18446744073709551615"],
            "begin lower",
        ),
        (
            &["sim", "table"],
            "required arguments were not provided: <NUMBER>",
        ),
        (&["sim", "table", "5"], "there is no table 5"),
        (&["sim", "figure", "3"], "there is no figure 3"),
        (&["sim", "figure", "1000"], "invalid value '1000'"),
        (&["sim", "trace", "--disk", "16"], "--disk is 16"),
        (
            &["sim", "run", "--plot", "plot.jpg"],
            "plots are .png, .svg or .pdf",
        ),
        (
            &["sim", "panda", "--plot", "plot.TIFF"],
            "plot.TIFF: plots are",
        ),
        (&["sim", "run", "--plot", "plots/"], "names no file"),
        (&["sim", "run", "--no-title"], "--plot"),
        (&["plot", "pie", "p"], "invalid value 'pie'"),
        (&["plot", "figure"], "<FILE|STEM>"),
        (&["plot", "figure", "plots/"], "plots/ names no file"),
        (&["sim", "preset", "tr95"], "preset tr95: there is none"),
        (&["sim", "preset", "no.toml"], "take one of tr94, "),
        (&["sim", "scale", "--clients", "0"], "nodes.clients is 0"),
        (&["sim", "scale", "--clients", "1,x"], "invalid value 'x'"),
    ];
    for (arguments, expected) in table {
        let error = refused(arguments, 2);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn results_that_cannot_be_written_are_exit_code_1() {
    let there_is_none = refused(&["sim", "run", "--json", "/nowhere/at/all.json"], 1);
    assert!(there_is_none.contains("/nowhere/at"), "{there_is_none}");
    let output = Command::new(env!("CARGO_BIN_EXE_penstock"))
        .args([
            "sim",
            "run",
            "--trials",
            "1",
            "--file-mb",
            "1",
            "--json",
            "-",
        ])
        .args(["--plot", "plot"])
        .env("PENSTOCK_PYTHON", "/nowhere/python")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1));
    assert!(error.contains("/nowhere/python"), "{error}");
    // The measured result is not lost.
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["throughput_mb_s"].is_number());
}

#[test]
fn help_and_version() {
    assert!(stdout(&["--help"]).contains("Usage: penstock"));
    assert!(stdout(&["sim", "run", "--help"]).contains("--pattern"));
    assert_eq!(
        stdout(&["--version"]),
        format!("penstock {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_command_alone_is_its_help() {
    let help = stdout(&[]);
    assert_eq!(help, stdout(&["--help"]));
    assert!(help.contains("Usage: penstock") && help.contains("verify"));
    let help = stdout(&["sim"]);
    assert_eq!(help, stdout(&["sim", "--help"]));
    assert!(help.contains("Usage: penstock sim") && help.contains("dickens-thakur"));
}

#[test]
fn a_preset_is_printed_and_given_back() {
    let list = stdout(&["sim", "preset"]);
    assert_eq!(list.lines().count(), 11);
    let first = list.lines().next().unwrap();
    let expected = "tr94              The machine of Kotz's report of 1994: ";
    assert!(first.starts_with(expected), "{first}");

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    let run = |preset: &str| {
        let small = ["sim", "run", "--trials", "1", "--json", "-", "--preset"];
        json(&[&small[..], &[preset]].concat())
    };
    for name in ["tr94", "nvme-server"] {
        let text = stdout(&["sim", "preset", name]);
        std::fs::write(&path, &text).unwrap();
        let given_back = run(path.to_str().unwrap());
        assert_eq!(given_back["trace_hash"], run(name)["trace_hash"], "{name}");
    }
}

#[test]
fn run_as_json() {
    let arguments = [
        "sim",
        "run",
        "--preset",
        "tr94",
        "--pattern",
        "rbb",
        "--record",
        "8",
        "--layout",
        "contiguous",
        "--method",
        "ddio",
        "--trials",
        "2",
        "--file-mb",
        "1",
        "--json",
        "-",
    ];
    let run = json(&arguments);
    for (key, expected) in [
        ("preset", "tr94"),
        ("pattern", "rbb"),
        ("layout", "contiguous"),
        ("method", "ddio"),
    ] {
        assert_eq!(run[key], expected);
    }
    assert_eq!((&run["record"], &run["trials"]), (&8.into(), &2.into()));
    let number = |key: &str| run[key].as_f64().unwrap();
    let per_trial = run["per_trial"].as_array().unwrap();
    let sum = |key: &str| {
        per_trial
            .iter()
            .map(|t| t[key].as_f64().unwrap())
            .sum::<f64>()
    };
    assert_eq!(per_trial.len(), 2);
    assert_eq!(number("throughput_mb_s"), sum("throughput_mb_s") / 2.0);
    assert_eq!(number("seconds"), sum("seconds") / 2.0);
    assert_eq!(number("events"), sum("events"));
    let hash = run["trace_hash"].as_str().unwrap();
    assert_eq!(hash.len(), 16);
    assert!(u64::from_str_radix(hash, 16).is_ok());
    // A second run gives the same, but for its time.
    let again = json(&arguments);
    assert_eq!(
        (&again["trace_hash"], &again["seconds"]),
        (&run["trace_hash"], &run["seconds"])
    );
    let mut other = arguments.to_vec();
    other.extend(["--network", "exact"]);
    assert_ne!(json(&other)["trace_hash"], run["trace_hash"]);
}

#[test]
fn random_is_short_for_random_blocks() {
    let run = [
        "sim",
        "run",
        "--trials",
        "1",
        "--file-mb",
        "1",
        "--json",
        "-",
        "--layout",
    ];
    let hash = |layout: &str| {
        let mut arguments = run.to_vec();
        arguments.push(layout);
        let run = json(&arguments);
        (run["layout"].clone(), run["trace_hash"].clone())
    };
    assert_eq!(hash("random"), hash("random-blocks"));
    assert_ne!(hash("random"), hash("random-tracks"));
}

/// The report's machine with a file of 20 blocks, as a preset file.
fn small_preset(directory: &Path) -> String {
    let preset = include_str!("../../../sim/presets/tr94.toml");
    let small = preset.replace("\nbytes = 10485760", "\nbytes = 163840");
    assert!(small != preset, "the size of the file is elsewhere");
    let path = directory.join("small.toml");
    std::fs::write(&path, small).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn table_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cells.json");
    let preset = small_preset(directory.path());
    let text = stdout(&[
        "sim",
        "table",
        "4",
        "--trials",
        "1",
        "--preset",
        &preset,
        "--json",
        file.to_str().unwrap(),
    ]);
    assert!(text.starts_with("Table 4"), "{text}");
    let table: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(table["number"], 4);
    let cells = table["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 70);
    for cell in cells {
        assert_eq!(cell["layout"], "contiguous");
        assert!(cell["mb_s"].as_f64().unwrap() > 0.0);
        assert!(["caching", "ddio"].contains(&cell["method"].as_str().unwrap()));
        assert!([8, 8192].contains(&cell["record"].as_u64().unwrap()));
        let known = cell["published"].is_number();
        assert_eq!(cell["ratio"].is_number(), known, "{cell}");
        assert!(known || cell["published"].is_null());
    }
    let known = cells.iter().filter(|cell| cell["published"].is_number());
    assert_eq!(known.count(), 38);
}

#[test]
fn other_studies_as_json() {
    let small = ["--trials", "1", "--file-mb", "1", "--json", "-"];
    let of = |study: &[&str]| json(&[&["sim"], study, &small[..]].concat());
    let figure = of(&["figure", "8"]);
    assert_eq!(
        (&figure["figure"], &figure["x_scale"]),
        (&"8".into(), &"log2".into())
    );
    assert_eq!(figure["series"].as_array().unwrap().len(), 6);
    let scale = of(&["scale", "--clients", "2,4", "--servers", "1"]);
    assert_eq!(scale["rows"].as_array().unwrap().len(), 6);
    let trace = json(&["sim", "trace", "--file-mb", "1", "--json", "-"]);
    assert!(trace["traceEvents"].as_array().unwrap().len() > 100);
}

/// A reader that closes the pipe early is no error.
#[test]
fn a_reader_may_leave() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_penstock"))
        .args(["sim", "trace", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(ended.status.code(), Some(0));
}

#[test]
fn dickens_and_thakur_are_shown_beside_what_is_simulated() {
    let asked = [
        "sim",
        "dickens-thakur",
        "--preset",
        "sp2-anl",
        "--figure",
        "4",
    ];
    let text = stdout(&asked);
    assert!(text.starts_with("Figure 4 of Dickens and Thakur on sp2-anl"));
    assert!(text.contains("plain write overlapped, 64 processors"));
    let machines = json(&[&asked[..], &["--json", "-"]].concat());
    let machine = &machines[0];
    assert_eq!(machine["preset"], "sp2-anl");
    assert_eq!(machine["numbers"][0]["paper"], 46.0);
    let series = &machine["figures"][0]["series"];
    assert_eq!(series[1]["name"], "all in background");
    assert_eq!(series[1]["points"][3]["x"], 64);
}

#[test]
fn panda_is_shown_beside_what_is_simulated() {
    let asked = [
        "sim",
        "panda",
        "--figure",
        "9",
        "--array-mb",
        "16",
        "--trials",
        "1",
    ];
    let text = stdout(&asked);
    assert!(text.starts_with("Figure 9 of Panda on sp2-nas"));
    assert!(text.contains("38 to 86"));
    let measured = json(&[&asked[..], &["--json", "-"]].concat());
    assert_eq!(measured["preset"], "sp2-nas");
    assert_eq!(measured["comparisons"][0]["runs"], 3);
    assert_eq!(measured["cells"][0][2]["servers"], 8);
    let series = &measured["figures"][0]["series"];
    assert_eq!(series[0]["name"], "16 MB");
    assert_eq!(series[0]["points"][2]["x"], 8);
}

#[test]
fn vesta_is_shown_beside_what_is_simulated() {
    let asked = ["sim", "vesta", "--figure", "13", "--cell-mb", "1"];
    let text = stdout(&asked);
    assert!(text.starts_with("Figure 13 of Vesta on sp1-vesta"));
    assert!(text.contains("in proportion to the system"));
    assert!(text.ends_with("1 trial, seed 0; preset sp1-vesta with --cell-mb 1\n"));
    let measured = json(&[&asked[..], &["--json", "-"]].concat());
    assert_eq!(measured["preset"], "sp1-vesta");
    assert_eq!(measured["statements"][0]["holds"], true);
    let series = &measured["figures"][0]["series"];
    assert_eq!(series[2]["name"], "64 KB read");
    assert_eq!(series[2]["points"][3]["x"], 4);
    let model = json(&[
        "sim",
        "vesta",
        "--figure",
        "11",
        "--cell-mb",
        "8",
        "--json",
        "-",
    ]);
    assert_eq!(model["numbers"][0]["paper"], 6.7);
    assert_eq!(model["figures"][0]["published"][0]["x"], 8);
}

/// The text, the JSON and the input of plots have the same provenance.
#[test]
fn every_result_says_what_it_was_made_with() {
    let version = env!("CARGO_PKG_VERSION");
    let clients = "nodes.clients 4 (preset: 16)";
    let file = "file.bytes 1048576 (preset: 10485760)";
    let machine = ["--file-mb", "1", "--clients", "4", "--seed", "3"];
    let machine = |study: &[&'static str]| [study, &machine[..]].concat();
    let table: &[(Vec<&str>, String)] = &[
        (
            machine(&["run", "--trials", "2"]),
            format!("2 trials, seed 3; preset tr94 with {file}, {clients}"),
        ),
        (
            machine(&["table", "4", "--trials", "1"]),
            format!("1 trial, seed 3; preset tr94 with {file}, {clients}"),
        ),
        (
            machine(&["figure", "8", "--trials", "1"]),
            format!("1 trial, seed 3; preset tocs97 with {file}, {clients}"),
        ),
        (
            machine(&["summary", "--trials", "1", "--preset", "tr94"]),
            format!("1 trial, seed 3; preset tr94 with {file}, {clients}"),
        ),
        (
            machine(&["trace", "--network", "exact"]),
            format!(
                "1 trial, seed 3; preset tr94 with {file}, network.contention exact (preset: stochastic), {clients}"
            ),
        ),
        (
            vec![
                "scale",
                "--clients",
                "2,4",
                "--servers",
                "1",
                "--file-mb",
                "64",
                "--pattern",
                "rb",
            ],
            "1 trial, seed 0; preset nvme-server with --clients 2,4, --servers 1, --pattern rb, --file-mb 64"
                .into(),
        ),
        (
            vec![
                "panda",
                "--figure",
                "7",
                "--clients",
                "24",
                "--array-mb",
                "3",
            ],
            "5 trials, seed 0; preset sp2-nas with --clients 24, --array-mb 3".into(),
        ),
    ];
    for (arguments, expected) in table {
        let arguments = [&["sim"], &arguments[..]].concat();
        let expected = format!("penstock {version}; {expected}");
        let text = stdout(&arguments);
        assert_eq!(text.lines().last(), Some(&*expected), "{arguments:?}");
        let json = json(&[&arguments[..], &["--json", "-"]].concat());
        let provenance = &json["provenance"];
        assert_eq!(provenance["text"], *expected, "{arguments:?}");
        assert_eq!(provenance["version"], version);
        assert!(provenance["overrides"].as_array().unwrap().len() >= 2);
        assert!(provenance["trials"].is_u64() && provenance["seed"].is_u64());
    }
    let asked = ["sim", "dickens-thakur", "--figure", "4", "--preset"];
    let asked = [&asked[..], &["sp2-anl", "--seed", "2"]].concat();
    let expected = format!("penstock {version}; 1 trial, seed 2; preset sp2-anl");
    assert_eq!(stdout(&asked).lines().last(), Some(&*expected));
    let machines = json(&[&asked[..], &["--json", "-"]].concat());
    assert_eq!(machines[0]["provenance"]["text"], *expected);
}

/// Takes the place of Python: notes each plot that it is to draw, and the plot's data.
fn plotted(arguments: &[&str], plot: &str) -> Vec<(String, Value)> {
    drawn(&[arguments, &["--plot", plot]].concat(), "")
}

/// Runs a command that reads `input`; what its stand-in for Python is asked to draw, and what from.
fn drawn(arguments: &[&str], input: &str) -> Vec<(String, Value)> {
    // Not made here: a child of another test might have it open for writing as it is to run.
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/python.sh");
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("input.json"), input).unwrap();
    let log = directory.path().join("log");
    let ran = Command::new(env!("CARGO_BIN_EXE_penstock"))
        .args(arguments)
        .env("PENSTOCK_PYTHON", python)
        .env("LOG", &log)
        .current_dir(directory.path())
        .stdin(std::fs::File::open(directory.path().join("input.json")).unwrap())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{arguments:?}: {ran:?}");
    let log = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let pairs = lines.chunks(2);
    pairs
        .map(|pair| (pair[0].into(), serde_json::from_str(pair[1]).unwrap()))
        .collect()
}

#[test]
fn json_is_drawn_from_the_standard_input_or_a_file() {
    let input = "{\"points\": []}";
    let points: Value = serde_json::from_str(input).unwrap();
    for (more, expected) in [
        (&[][..], "seeks arm.png"),
        (&["--no-title"], "seeks arm.png --no-title"),
        (&["--data", "input.json"], "seeks arm.png"),
    ] {
        let drawn = drawn(&[&["plot", "seeks", "arm.png"], more].concat(), input);
        assert_eq!(drawn, [(expected.to_owned(), points.clone())]);
    }
    let there_is_none = refused(&["plot", "seeks", "arm", "--data", "/nowhere.json"], 1);
    assert!(
        there_is_none.contains("cannot read /nowhere.json"),
        "{there_is_none}"
    );
    let there_is_none = refused(&["plot", "seeks", "/nowhere/arm"], 1);
    assert!(
        there_is_none.contains("no directory /nowhere"),
        "{there_is_none}"
    );
}

#[test]
fn plots_go_where_their_name_says() {
    let small = ["sim", "run", "--trials", "1", "--file-mb", "1"];
    for plot in ["one.png", "one.v2", "one.pdf"] {
        let plots = plotted(&small, plot);
        assert_eq!(plots.len(), 1);
        assert_eq!(plots[0].0, format!("figure {plot}"));
        let made = plots[0].1["provenance"]["text"].as_str().unwrap();
        assert!(made.contains("file.bytes 1048576"), "{made}");
    }
    let untitled = plotted(&[&small[..], &["--no-title"]].concat(), "one");
    assert_eq!(untitled[0].0, "figure one --no-title");

    let panda = ["sim", "panda", "--array-mb", "1", "--trials", "1"];
    let names = |arguments: &[&str], plot| -> Vec<String> {
        let plots = plotted(arguments, plot).into_iter();
        plots
            .map(|(asked, _)| asked.replace("figure ", ""))
            .collect()
    };
    let all = |stem: &str, ending: &str| -> Vec<String> {
        (3..=9)
            .map(|figure| format!("{stem}-{figure}{ending}"))
            .collect()
    };
    assert_eq!(names(&panda, "p"), all("p", ""));
    assert_eq!(names(&panda, "p.svg"), all("p", ".svg"));
    let one = [&panda[..], &["--figure", "9"]].concat();
    assert_eq!(names(&one, "p"), ["p-9"]);
    assert_eq!(names(&one, "p.svg"), ["p.svg"]);
}

#[test]
fn what_papers_say_is_drawn_too() {
    let panda = ["sim", "panda", "--array-mb", "1", "--trials", "1"];
    for (figure, plot) in plotted(&panda, "p") {
        let published = plot["published"].as_array().unwrap();
        assert_eq!(published.len(), 1, "{figure}");
        assert!(
            published[0]["name"]
                .as_str()
                .unwrap()
                .starts_with("paper: ")
        );
    }
    // A cell of the report's tables, on the report's machine as it is.
    let run = ["sim", "run", "--pattern", "rn", "--method", "caching"];
    let run = [&run[..], &["--trials", "1"]].concat();
    let (_, plot) = plotted(&run, "r").remove(0);
    assert_eq!(plot["published"][0]["name"], "published: 31.4");
    assert!(stdout(&run).contains("(published: 31.4)"));
    let (_, plot) = plotted(&[&run[..], &["--clients", "8"]].concat(), "r").remove(0);
    assert_eq!(plot["published"].as_array().unwrap().len(), 0);
}

/// A rank that finds no MPI is no job of its own: all ranks would do the whole work.
#[test]
fn a_rank_of_an_mpi_that_is_not_there_does_nothing() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target.zarr");
    for (variable, value) in [
        ("PMI_RANK", "0"),
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("PMIX_RANK", "0"),
    ] {
        let ran = Command::new(env!("CARGO_BIN_EXE_penstock"))
            .args(["copy", "nothing.zarr"])
            .arg(&target)
            .env(variable, value)
            .env("MPI4PY_LIBMPI", "/no/such/libmpi.so")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(1), "{errors}");
        assert!(
            errors.contains("loading an MPI library /no/such/libmpi.so"),
            "{errors}"
        );
        assert!(!target.exists());
    }
}
