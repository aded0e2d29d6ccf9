//! `annulus chat`: a conversation on the terminal, or over pipes.

use std::io::{self, BufRead, IsTerminal, Write};

use annulus_engine::job::Event;
use serde_json::{Value, json};
use tokio::signal::ctrl_c;
use tokio::sync::mpsc;

use super::session::Session;
use super::{Failure, model, sampling};
use crate::events::Events;

/// The flags of `annulus chat`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: model::Args,
    /// What the model is told before the conversation.
    #[arg(long, env = "ANNULUS_SYSTEM")]
    system: Option<String>,
    /// The most tokens of an answer.
    #[arg(long, env = "ANNULUS_MAX_TOKENS", default_value_t = 1024)]
    max_tokens: usize,
    #[command(flatten)]
    sampling: sampling::Args,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let session = Session::open(&args.model)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(converse(args, &session))
}

async fn converse(args: &Args, session: &Session) -> Result<(), Failure> {
    let prompts = io::stdin().is_terminal();
    if prompts {
        println!("Talking with {}. /reset begins anew, /exit ends; Ctrl-C stops an answer.", session.front.id);
    }
    let system = || args.system.iter().map(|text| json!({"role": "system", "content": text}));
    let mut history: Vec<Value> = system().collect();
    let mut lines = lines();
    loop {
        if prompts {
            print!("> ");
            io::stdout().flush()?;
        }
        let line = tokio::select! {
            line = lines.recv() => line.transpose()?,
            _ = ctrl_c() => None,
        };
        match line.as_deref().map(str::trim) {
            None | Some("/exit") => return Ok(()),
            Some("/reset") => history = system().collect(),
            Some("") => {}
            Some(text) => {
                history.push(json!({"role": "user", "content": text}));
                match answer(args, session, &history).await {
                    Ok(text) => history.push(json!({"role": "assistant", "content": text})),
                    Err(error) => {
                        // The message stays unanswered and unsaid, so that /reset or another one can follow.
                        history.pop();
                        if !prompts {
                            return Err(error);
                        }
                        eprintln!("error: {error} (/reset begins anew)");
                    }
                }
            }
        }
    }
}

/// Prints an answer as it comes; Ctrl-C ends it, and what was said remains said.
async fn answer(args: &Args, session: &Session, history: &[Value]) -> Result<String, Failure> {
    let prompt = session.conversation(history.to_vec())?;
    let sampling = args.sampling.over(&session.front.sampling);
    let mut events = session.start(prompt, args.max_tokens, sampling)?;
    let mut said = String::new();
    // Dropping the events at the end is what stops the model.
    let outcome = tokio::select! {
        outcome = print_text(&mut events, &mut said) => outcome,
        _ = ctrl_c() => Ok(()),
    };
    writeln!(io::stdout())?;
    outcome.map(|()| said)
}

async fn print_text(events: &mut Events, said: &mut String) -> Result<(), Failure> {
    let mut out = io::stdout();
    while let Some(event) = events.next().await {
        match event {
            Event::Text { text, .. } => {
                out.write_all(text.as_bytes())?;
                out.flush()?;
                said.push_str(&text);
            }
            Event::Finished(_) => return Ok(()),
            Event::Failed(error) => return Err(error.into()),
            Event::Started | Event::Prefill { .. } | Event::Prompt(_) => {}
        }
    }
    Err("the model's thread dropped the message without an answer".into())
}

/// The lines of standard input. They are read on a thread of their own, which the end of the process ends: nothing can
/// interrupt a thread that waits for somebody to type.
fn lines() -> mpsc::Receiver<io::Result<String>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let failed = line.is_err();
            if sender.blocking_send(line).is_err() || failed {
                return;
            }
        }
    });
    receiver
}
