//! Chat templates: a list of messages as the text that the model was trained on.

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use serde_json::{Map, Value};

use super::{TemplateError, TextError, Tokenizer, python};
use crate::checkpoint::{Checkpoint, Config, GgufFile, LoadError};

/// What a template is rendered with.
#[derive(Debug, Clone, Default)]
pub struct ChatInput {
    /// The messages, as the OpenAI API has them: objects with `role` and `content`.
    pub messages: Vec<Value>,
    /// JSON schemas of the tools that the model may call; `None` when there are none.
    pub tools: Option<Vec<Value>>,
    /// Whether the text ends with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables, such as `documents` or `enable_thinking`. They take precedence over what is set without them.
    pub kwargs: Map<String, Value>,
}

/// A model's chat template, rendered as Python's transformers renders it.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: Map<String, Value>,
}

/// Names of the templates in the environment.
const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

impl ChatTemplate {
    /// The template of a checkpoint; `None` when it has none, as base models do.
    ///
    /// It is `chat_template.jinja`, else the field `chat_template` of `tokenizer_config.json`: a string, or a list of
    /// named ones of which `default` and `tool_use` are used. In a GGUF file it is in the metadata.
    ///
    /// # Errors
    /// When it cannot be read, or is not valid Jinja.
    pub fn open(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Option<Self>, TextError> {
        let sources = match checkpoint.gguf() {
            Some(file) => Sources::from_gguf(file)?,
            None => Sources::from_folder(checkpoint.path())?,
        };
        if sources.default.is_none() {
            return Ok(None);
        }
        let special_tokens = tokenizer.special_tokens().iter().map(|(name, token)| (name.to_owned(), token.into()));
        Self::new(sources, special_tokens.collect()).map(Some)
    }

    /// A template from its source, with the special tokens it may name (`bos_token`).
    ///
    /// # Errors
    /// When it is not valid Jinja.
    pub fn from_source(source: &str, special_tokens: Map<String, Value>) -> Result<Self, TextError> {
        let sources = Sources { file: "chat template".into(), default: Some(source.to_owned()), tool_use: None };
        Self::new(sources, special_tokens)
    }

    fn new(sources: Sources, special_tokens: Map<String, Value>) -> Result<Self, TextError> {
        let mut environment = environment();
        let named = [(DEFAULT, sources.default), (TOOL_USE, sources.tool_use)];
        for (name, source) in named {
            let Some(source) = source else { continue };
            let added = environment.add_template_owned(name, without_generation_tags(&source));
            added.map_err(|error| TextError::Template { file: sources.file.clone(), problem: describe(&error) })?;
        }
        Ok(Self { environment, special_tokens })
    }

    /// Renders a chat.
    ///
    /// # Errors
    /// When the template refuses the chat, or fails.
    pub fn render(&self, input: &ChatInput) -> Result<String, TemplateError> {
        let has_tool_template = self.environment.get_template(TOOL_USE).is_ok();
        let name = if input.tools.is_some() && has_tool_template { TOOL_USE } else { DEFAULT };
        let template = self.environment.get_template(name).map_err(|error| failure(&error))?;
        let rendered = template.render(Serde(self.variables(input)));
        rendered.map_err(|error| failure(&error))
    }

    fn variables(&self, input: &ChatInput) -> Map<String, Value> {
        let mut variables = self.special_tokens.clone();
        let messages = input.messages.iter().map(without_nulls).collect();
        variables.insert("messages".to_owned(), Value::Array(messages));
        // Templates ask both whether tools are defined and whether they are none.
        variables.insert("tools".to_owned(), input.tools.clone().map_or(Value::Null, Value::Array));
        variables.insert("documents".to_owned(), Value::Null);
        variables.insert("add_generation_prompt".to_owned(), input.add_generation_prompt.into());
        variables.extend(input.kwargs.clone());
        variables
    }
}

/// A message without fields that are `null`, as transformers hands it to the template: clients send `content: null`
/// beside tool calls, and templates would write it as "None".
fn without_nulls(message: &Value) -> Value {
    match message {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        other => other.clone(),
    }
}

/// A checkpoint's templates as text.
#[derive(Debug, Default)]
struct Sources {
    /// Where they come from, for errors.
    file: PathBuf,
    default: Option<String>,
    /// The one for chats with tools, where a model has two.
    tool_use: Option<String>,
}

impl Sources {
    fn from_gguf(file: &GgufFile) -> Result<Self, LoadError> {
        let template = |key: &str| Ok::<_, LoadError>(file.string(key)?.map(str::to_owned));
        Ok(Self {
            file: file.file().path().to_owned(),
            default: template("tokenizer.chat_template")?,
            tool_use: template("tokenizer.chat_template.tool_use")?,
        })
    }

    fn from_folder(folder: &Path) -> Result<Self, LoadError> {
        let file = folder.join("chat_template.jinja");
        if file.is_file() {
            let source = std::fs::read_to_string(&file);
            return Ok(Self {
                default: Some(source.map_err(|source| LoadError::io(&file, source))?),
                tool_use: None,
                file,
            });
        }
        let file = folder.join("tokenizer_config.json");
        if !file.is_file() {
            return Ok(Self::default());
        }
        let config = Config::read(&file)?;
        let mut sources = Self { file, ..Self::default() };
        match config.value("chat_template") {
            None => {}
            Some(Value::String(source)) => sources.default = Some(source.clone()),
            Some(Value::Array(list)) => {
                for entry in list {
                    let text = |field: &str| entry.get(field)?.as_str();
                    match (text("name"), text("template")) {
                        (Some(DEFAULT), Some(source)) => sources.default = Some(source.to_owned()),
                        (Some(TOOL_USE), Some(source)) => {
                            sources.tool_use = Some(source.to_owned());
                        }
                        (Some(_), Some(_)) => {}
                        _ => {
                            let problem = "must list objects with the strings \"name\" and \"template\"";
                            return Err(config.error("chat_template", problem));
                        }
                    }
                }
            }
            Some(_) => return Err(config.error("chat_template", "must be a string or a list")),
        }
        Ok(sources)
    }
}

/// Jinja as transformers sets it up.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    if let Ok(syntax) = syntax {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(python::method);
    environment.add_filter("tojson", python::tojson);
    environment.add_filter("escape", python::escape_html);
    environment.add_filter("e", python::escape_html);
    environment.add_test("sequence", python::is_sequence);
    environment.add_test("iterable", python::is_iterable);
    environment.add_function("strftime_now", python::strftime_now);
    environment.add_function("raise_exception", |message: String, _: Kwargs| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
    });
    environment
}

/// The message of `raise_exception`, on its way through the engine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// An error with its causes, on one line.
fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn failure(error: &Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Raised(message)) = error.downcast_ref() {
            return TemplateError::Raised(message.clone());
        }
        cause = error.source();
    }
    TemplateError::Failed(describe(error))
}

/// Turns `{% generation %}` blocks, which mark the assistant's text for training, into blocks that only open a scope, as
/// they do in transformers otherwise. Jinja has no such tag.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        out.push_str(before);
        let inner = tag.trim_start_matches("{%").trim_end_matches("%}");
        match inner.trim_matches(['-', '+']).trim() {
            "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}
