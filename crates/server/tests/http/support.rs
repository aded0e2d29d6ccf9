//! A server over a scripted model, and a client that reads bytes: SDKs forgive too much.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use annulus_engine::engine::{Engine, Front};
use annulus_engine::job::{Event, FinishReason, Job, JobError, Sampling, Sink, Summary, Token};
use annulus_engine::text::{ChatTemplate, Tokenizer};
use annulus_engine::worker::{Generator, Worker};
use annulus_server::http::app::Settings;
use annulus_server::http::shutdown::serve;
use serde_json::Value;
use tokio::sync::mpsc;

/// Nothing here takes long; whoever waits longer than this waits for something that will not come.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// The name of the test model; with a slash, as names of real ones have.
pub(crate) const MODEL: &str = "test/model";
/// Its context.
pub(crate) const CONTEXT: usize = 256;
/// The token that ends its answers; the others are bytes.
pub(crate) const END: u32 = 256;

/// What the model does with a job.
pub(crate) trait Script: FnMut(&Job, &mut dyn Sink) -> Result<(), JobError> + Send + 'static {}
impl<F: FnMut(&Job, &mut dyn Sink) -> Result<(), JobError> + Send + 'static> Script for F {}

struct Scripted<S>(S);

impl<S: Script> Generator for Scripted<S> {
    fn run(&mut self, job: &Job, sink: &mut dyn Sink) -> Result<(), JobError> {
        (self.0)(job, sink)
    }
}

/// How a test's server differs from the usual one.
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    pub(crate) max_queue: usize,
    pub(crate) patience: Duration,
    pub(crate) template: bool,
    /// Runs before the model is ready.
    pub(crate) load: Box<dyn FnOnce() -> Result<(), String> + Send>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            max_queue: 4,
            patience: Duration::from_secs(1),
            template: true,
            load: Box::new(|| Ok(())),
        }
    }
}

/// A running server. Dropping it stops it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Arc<Engine>,
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Server {
    /// A server whose model is ready.
    pub(crate) fn start(script: impl Script) -> Self {
        Self::ready(Setup::default(), script)
    }

    /// A server whose model is ready.
    pub(crate) fn ready(setup: Setup, script: impl Script) -> Self {
        let server = Self::with(setup, script);
        let _ = server.engine.wait_until_loaded();
        server
    }

    pub(crate) fn with(setup: Setup, script: impl Script) -> Self {
        let cell = Arc::new(OnceLock::new());
        let filled = Arc::clone(&cell);
        let worker = Worker::start(setup.max_queue, move || {
            (setup.load)()?;
            let _ = filled.set(Arc::new(front(setup.template)));
            Ok(Scripted(script))
        })
        .unwrap();
        let engine = Arc::new(Engine::from_parts(worker, cell, Arc::default()));
        let (stop, stopped) = mpsc::channel(2);
        let (tell, told) = std::sync::mpsc::channel();
        let theirs = Arc::clone(&engine);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
                tell.send(listener.local_addr()?).unwrap();
                serve(listener, theirs, setup.settings, stopped, setup.patience).await
            })
        });
        Self { address: told.recv_timeout(DEADLINE).unwrap(), engine, stop, thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Connection(BufReader::new(stream))
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        let mut connection = self.connect();
        connection.send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes());
        connection.response()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        let mut connection = self.connect();
        connection.post(path, body);
        connection.response()
    }

    pub(crate) fn chat(&self, body: &Value) -> Response {
        self.post(CHAT, body)
    }

    pub(crate) fn complete(&self, body: &Value) -> Response {
        self.post(COMPLETIONS, body)
    }

    /// Waits until `/health` shows what is wanted.
    pub(crate) fn wait_for_health(&self, what: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let health = self.get("/health").json();
            if what(&health) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "health stays {health}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until so many requests wait for the model.
    pub(crate) fn wait_for_waiting(&self, waiting: usize) {
        self.wait_for_health(|health| health["waiting"] == waiting);
    }

    /// Asks the server to stop, as a signal does.
    pub(crate) fn stop(&self) {
        self.stop.blocking_send(()).unwrap();
    }

    /// Waits for the server's end.
    pub(crate) fn join(&mut self) -> std::io::Result<()> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Twice means at once. If the server has ended, the channel is closed, which is as good.
        let _ = self.stop.try_send(());
        let _ = self.stop.try_send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";

/// A raw connection.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) {
        self.post_bytes(path, "content-type: application/json\r\n", body.to_string().as_bytes());
    }

    /// Posts any bytes with any headers.
    pub(crate) fn post_bytes(&mut self, path: &str, headers: &str, body: &[u8]) {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: test\r\n{headers}content-length: {length}\r\n\r\n");
        self.send(head.as_bytes());
        self.send(body);
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.strip_suffix("\r\n").unwrap_or(&line).to_owned()
    }

    /// Reads a status and headers.
    pub(crate) fn head(&mut self) -> Response {
        let line = self.line();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {line:?}"));
        let mut response = Response { status: status.parse().unwrap(), headers: Vec::new(), body: Vec::new() };
        loop {
            let line = self.line();
            if line.is_empty() {
                return response;
            }
            let (name, value) = line.split_once(": ").unwrap();
            response.headers.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Reads a whole answer.
    pub(crate) fn response(&mut self) -> Response {
        let mut response = self.head();
        match response.header("content-length") {
            Some(length) => {
                response.body = vec![0; length.parse().unwrap()];
                self.0.read_exact(&mut response.body).unwrap();
            }
            None => {
                while let Some(chunk) = self.chunk() {
                    response.body.extend(chunk);
                }
            }
        }
        response
    }

    /// Reads one chunk of an answer without a length; `None` at its end.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = self.line();
        let length = usize::from_str_radix(&length, 16).unwrap_or_else(|_| panic!("chunk {length:?}"));
        let mut chunk = vec![0; length];
        self.0.read_exact(&mut chunk).unwrap();
        assert_eq!(self.line(), "");
        (length > 0).then_some(chunk)
    }

    /// Reads one event of a stream, which the server sends as one chunk.
    pub(crate) fn event(&mut self) -> String {
        String::from_utf8(self.chunk().expect("the stream has ended")).unwrap()
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.0.read(&mut [0]).map_or(true, |read| read == 0)
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    /// The payloads of a stream, which must be nothing but `data: …` events and end with `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.text();
        let text = text.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("no [DONE] at the end of {text:?}"));
        text.split_terminator("\n\n")
            .map(|event| {
                let json = event.strip_prefix("data: ").unwrap_or_else(|| panic!("event {event:?}"));
                serde_json::from_str(json).unwrap()
            })
            .collect()
    }

    /// An error's parts, all of which must be there and none beside them.
    pub(crate) fn error(&self) -> ErrorBody {
        assert_eq!(self.header("content-type"), Some("application/json"));
        error_of(&self.json())
    }
}

/// The parts of an error.
#[derive(Debug, PartialEq)]
pub(crate) struct ErrorBody {
    pub(crate) message: String,
    pub(crate) kind: String,
    pub(crate) param: Option<String>,
    pub(crate) code: Option<String>,
}

/// An error's parts, all of which must be there and none beside them.
pub(crate) fn error_of(json: &Value) -> ErrorBody {
    assert_eq!(json.as_object().unwrap().len(), 1, "{json}");
    let error = json["error"].as_object().unwrap();
    let mut keys: Vec<_> = error.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["code", "message", "param", "type"], "{json}");
    let text = |key: &str| error[key].as_str().map(str::to_owned);
    ErrorBody {
        message: text("message").unwrap(),
        kind: text("type").unwrap(),
        param: text("param"),
        code: text("code"),
    }
}

/// A chat request's smallest body.
pub(crate) fn hello() -> Value {
    serde_json::json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]})
}

/// `body` with the fields of `more`.
pub(crate) fn with(mut body: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// A script that gives the same pieces to every job, a token for each byte.
pub(crate) fn say(pieces: &'static [&'static str]) -> impl Script {
    move |job: &Job, sink: &mut dyn Sink| {
        for piece in pieces {
            text(sink, piece);
        }
        finish(job, sink, FinishReason::Stop, pieces.concat().len());
        Ok(())
    }
}

/// Sends a piece of text, a token for each byte.
pub(crate) fn text(sink: &mut dyn Sink, text: &str) {
    let token = |byte| Token { id: u32::from(byte), logprob: None };
    sink.send(Event::Text { text: text.to_owned(), tokens: text.bytes().map(token).collect() });
}

/// Sends a job's end.
pub(crate) fn finish(job: &Job, sink: &mut dyn Sink, reason: FinishReason, completion_tokens: usize) {
    sink.send(Event::Finished(Summary {
        reason,
        prompt_tokens: job.prompt.len(),
        completion_tokens,
        cached_tokens: 0,
        prefill: Duration::from_millis(1),
        decode: Duration::from_millis(1),
    }));
}

/// What a model does whose client may go at any time: look, once a step, whether it has.
pub(crate) fn run_until_closed(sink: &dyn Sink) {
    let began = Instant::now();
    while !sink.is_closed() {
        assert!(began.elapsed() < DEADLINE, "nobody closed the sink");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn front(template: bool) -> Front {
    Front {
        id: MODEL.to_owned(),
        created: 1_700_000_000,
        context_length: CONTEXT,
        end_tokens: vec![END],
        sampling: Sampling::default(),
        tokenizer: Arc::new(tokenizer()),
        template: template.then(chat_template),
        details: BTreeMap::new(),
    }
}

/// Renders `role:content` a line.
const TEMPLATE: &str = r"
{%- if tools %}{{ 'tools:' ~ (tools | tojson) ~ '\n' }}{% endif %}
{%- if mood is defined %}{{ 'mood:' ~ mood ~ '\n' }}{% endif %}
{%- for message in messages %}
    {%- if message.content == 'refuse me' %}{{ raise_exception('not with me') }}{% endif %}
    {{- message.role ~ ':' ~ message.content ~ '\n' }}
    {%- for call in message.tool_calls %}
        {{- call.function.name ~ '(' ~ call.function.arguments.a ~ ')\n' }}
    {%- endfor %}
{%- endfor %}";

fn chat_template() -> ChatTemplate {
    ChatTemplate::from_source(TEMPLATE, serde_json::Map::new()).unwrap()
}

/// A token for each byte, by its value, and one that ends an answer.
fn tokenizer() -> Tokenizer {
    let vocab: BTreeMap<String, u32> = (0..=255u8).map(|byte| (byte_character(byte).into(), u32::from(byte))).collect();
    let byte_level = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    });
    let file = serde_json::json!({
        "version": "1.0",
        "added_tokens": [{
            "id": END, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        }],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    Tokenizer::from_folder(folder.path()).unwrap()
}

/// The character by which byte-level vocabularies spell a byte: itself where it is visible, else one from U+0100 on.
fn byte_character(byte: u8) -> char {
    let visible = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if visible(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !visible(*byte)).count();
    char::from_u32(0x100 + u32::try_from(before).unwrap()).unwrap()
}
