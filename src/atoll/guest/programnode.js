// Runs cells of JavaScript and TypeScript in one node process. `programdriver.py` starts it and speaks to it.
//
// Requests come on descriptor 5, each a length (u32) and JSON; answers go out on descriptor 3 as packets.
// Cells are evaluated as a browser's console does it: `let`, `const` and `class` last and may be declared again,
// and `await` works at top level.
(function (require, load) {
  'use strict';
  const fs = require('fs');
  const net = require('net');
  const path = require('path');
  const util = require('util');
  const vm = require('vm');
  const nodeModule = require('module');
  const { Readable, Writable } = require('stream');
  const { Session } = require('inspector');

  const ANSWERS = 3, TEXT = 4, REQUESTS = 5;
  const DATA = 3, EVENT = 5, END = 8;
  const STDOUT = 1, STDERR = 2;
  const PACKET = 1 << 16, MORE = 1;
  const TEXT_LIMIT = 60000, RESULT_LIMIT = 500000, JSON_DEPTH = 50;
  const NOBODY = 'There is nobody to ask in a sandbox: put the value into the code.';

  fs.closeSync(TEXT);

  // ---- packets

  function put(kind, payload, stream) {
    const header = Buffer.alloc(10);
    header.writeUInt32LE(payload.length, 0);
    header[8] = kind;
    header[9] = stream;
    try {
      fs.writeSync(ANSWERS, Buffer.concat([header, payload]));
    } catch (error) {
      process.reallyExit(0); // the guest is gone
    }
  }

  function say(kind, value) {
    const text = Buffer.from(JSON.stringify(value).replace(/[\ud800-\udfff]/g, escaped), 'utf8');
    let start = 0;
    for (; text.length - start > PACKET; start += PACKET) put(kind, text.subarray(start, start + PACKET), MORE);
    put(kind, text.subarray(start), 0);
  }

  function escaped(half, at, whole) {
    const code = half.charCodeAt(0);
    const other = code < 0xdc00 ? whole.charCodeAt(at + 1) : whole.charCodeAt(at - 1);
    const paired = code < 0xdc00 ? other >= 0xdc00 && other <= 0xdfff : other >= 0xd800 && other <= 0xdbff;
    return paired ? half : '\\u' + code.toString(16);
  }

  function output(number) {
    const write = (chunk, _encoding, done) => {
      for (let at = 0; at < chunk.length; at += PACKET) put(DATA, chunk.subarray(at, at + PACKET), number);
      done();
    };
    return Object.assign(new Writable({ write }), { fd: number, isTTY: false });
  }

  const stdout = output(STDOUT), stderr = output(STDERR);
  const stdin = new Readable({ read() { this.destroy(new Error(NOBODY)); } });
  for (const [name, value] of Object.entries({ stdout, stderr, stdin: Object.assign(stdin, { fd: 0, isTTY: false }) })) {
    Object.defineProperty(process, name, { value, configurable: true, enumerable: true, writable: true });
  }

  function define(name, value) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: false });
  }

  // ---- what cells show

  let truncated = false;

  function bounded(text) {
    let cut = text;
    while (cut.length > RESULT_LIMIT / 8 && JSON.stringify(cut).length > RESULT_LIMIT / 2) cut = cut.slice(0, (cut.length * 3) >> 2);
    truncated = truncated || cut.length < text.length;
    return cut;
  }

  function isPlain(value, depth) {
    if (value === null || typeof value === 'string' || typeof value === 'boolean') return true;
    if (typeof value === 'number') return Number.isFinite(value);
    if (typeof value !== 'object' || depth > JSON_DEPTH || util.types.isProxy(value)) return false;
    if (Array.isArray(value)) return Object.keys(value).length === value.length && value.every((item) => isPlain(item, depth + 1));
    const above = Object.getPrototypeOf(value);
    if ((above !== null && above !== Object.prototype) || Object.getOwnPropertySymbols(value).length) return false;
    return Object.values(Object.getOwnPropertyDescriptors(value)).every((item) => 'value' in item && isPlain(item.value, depth + 1));
  }

  // The client takes nothing else for these types.
  function fits([mime, data]) {
    if (/^(text\/.*|image\/svg\+xml|application\/javascript)$/.test(mime)) return typeof data === 'string';
    if (/^(image\/(png|jpeg)|application\/pdf)$/.test(mime)) {
      const compact = typeof data === 'string' ? data.replace(/\s/g, '') : '-';
      return compact.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(compact);
    }
    const isObject = data !== null && typeof data === 'object' && !Array.isArray(data);
    return isObject || !/^application\/vnd\.(vega|plotly\.v1\+json|atoll\.chart\+json)/.test(mime);
  }

  function bundleOf(value, raw) {
    const own = value !== null && typeof value === 'object' ? value[Symbol.for('Jupyter.display')] : undefined;
    const given = raw ? value : typeof own === 'function' ? own.call(value) : undefined;
    if (given !== undefined) return isPlain(given, 0) && !Array.isArray(given) && given !== null && Object.entries(given).every(fits) ? given : undefined;
    const bundle = { 'text/plain': bounded(util.inspect(value, { maxStringLength: RESULT_LIMIT })) };
    if (value !== null && typeof value === 'object' && isPlain(value, 0)) {
      const text = JSON.stringify(value);
      if (text.length <= RESULT_LIMIT / 2) bundle['application/json'] = value;
    }
    return bundle;
  }

  function show(value, main, raw) {
    let bundle;
    try {
      bundle = bundleOf(value, raw);
    } catch (error) {
      bundle = { 'text/plain': `<a value that cannot be shown: ${textOf(error)}>` };
    }
    if (bundle === undefined) throw new TypeError('A raw display takes an object that maps MIME types to values: text, base64 for pictures, objects for charts.');
    if (JSON.stringify(bundle).length > RESULT_LIMIT) {
      truncated = true;
      bundle = { 'text/plain': bounded(util.inspect(bundle)) };
    }
    say(EVENT, { result: bundle, main });
  }

  define('display', (value, options) => show(value, false, Boolean(options && options.raw)));
  define('prompt', () => { throw new Error(NOBODY); });

  // ---- how cells fail

  function textOf(error) {
    try {
      return String(error && error.message !== undefined ? error.message : error);
    } catch {
      return 'its text cannot be shown';
    }
  }

  function cleaned(stack) {
    const kept = [];
    for (const line of stack.split('\n')) {
      if (/atoll:driver|node:inspector|\(node:vm|\[eval/.test(line)) break;
      kept.push(line);
    }
    return kept.join('\n');
  }

  function describe(error) {
    if (!util.types.isNativeError(error)) {
      const value = util.inspect(error).slice(0, TEXT_LIMIT);
      return { name: 'Thrown', value, traceback: `Uncaught ${value}\n` };
    }
    let story = '';
    try {
      story = cleaned(String(error.stack || `${error.name}: ${error.message}`));
      for (let cause = error.cause, left = 8; util.types.isNativeError(cause) && left; cause = cause.cause, left--) {
        story += `\nCaused by: ${cleaned(String(cause.stack))}`;
      }
    } catch {
      story = 'its story cannot be told';
    }
    const name = typeof error.name === 'string' ? error.name : 'Error';
    return { name: name.slice(0, 200), value: textOf(error).slice(0, TEXT_LIMIT), traceback: `${story.slice(-TEXT_LIMIT)}\n` };
  }

  class Interrupted extends Error {
    get name() { return 'Interrupted'; }
  }

  let fail = null; // rejects the cell that waits for something
  const timers = new Set(); // of the cell that runs

  process.on('SIGINT', () => {
    if (fail === null) return;
    for (const timer of timers) clearTimeout(timer);
    const error = new Interrupted('The cell was interrupted.');
    error.stack = `${error.name}: ${error.message}`;
    fail(error);
  });
  process.on('uncaughtException', (error) => {
    if (fail !== null) fail(error);
    else stderr.write(describe(error).traceback);
  });
  process.on('unhandledRejection', (error) => {
    stderr.write(`Uncaught (in promise) ${describe(error).traceback.replace(/^Uncaught /, '')}`);
  });

  // An interrupted cell must not go on behind the back of the next one, so its timers are known.
  for (const name of ['setTimeout', 'setInterval']) {
    const original = globalThis[name];
    const wrapped = function (...words) {
      const timer = original(...words);
      if (fail !== null) timers.add(timer);
      return timer;
    };
    Object.defineProperty(wrapped, 'name', { value: name });
    globalThis[name] = wrapped;
    require('timers')[name] = wrapped;
  }
  const later = (pause, value) => new Promise((done) => globalThis.setTimeout(done, pause, value));
  const promised = require('timers/promises');
  const patient = promised.setTimeout;
  promised.setTimeout = (pause, value, options) => (options ? patient(pause, value, options) : later(pause, value));
  globalThis.setTimeout[util.promisify.custom] = promised.setTimeout;

  // ---- imports, which only modules have

  const COMMENT_OR_TEXT = String.raw`\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\[\s\S]|[^'\\\n])*'|"(?:\\[\s\S]|[^"\\\n])*"|${'`'}(?:\\[\s\S]|[^${'`'}\\])*${'`'}`;
  const IMPORT = String.raw`(?<=^|[\n;}])([ \t]*)import\s*(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s*)?(?:\{([^}]*)\}\s*)?(?:\bfrom\s*)?(['"])([^'"\n]+)\5(?:\s*with\s*\{[^}]*\})?`;
  const CALLED = String.raw`(?<![.\w$])import(?=\s*\()`;
  const EXPORT = String.raw`(?<=^|[\n;}])([ \t]*)export\s+(?:default\s+(?=class\b|function\b|async\b)|(?=const\b|let\b|var\b|class\b|function\b|async\b))|(?<=^|[\n;}])[ \t]*export\s*\{\s*\}`;
  const TOKENS = new RegExp(`${IMPORT}|(${CALLED})|${EXPORT}|${COMMENT_OR_TEXT}`, 'g');

  function asScript(source) {
    if (!/\b(?:import|export)\b/.test(source)) return source;
    return source.replace(TOKENS, (whole, indent, all, space, names, _quote, from, called) => {
      if (called) return `globalThis[Symbol.for('atoll.import')]`;
      if (from !== undefined) return indent + imported(all, space, names, from) + ';' + '\n'.repeat(whole.split('\n').length - 1);
      return /^\s*export\b/.test(whole) ? ' ' : whole;
    });
  }

  function imported(all, space, names, from) {
    const call = `await globalThis[Symbol.for('atoll.import')](${JSON.stringify(from)})`;
    const parts = [];
    if (all) parts.push(`default: ${all}`);
    if (names) parts.push(names.replace(/\s+/g, ' ').replace(/([\w$]+|"[^"]*") as /g, '$1: '));
    const first = parts.length ? `const { ${parts.join(', ')} } = ${call}` : '';
    const second = space ? `const ${space} = ${call}` : '';
    return [first, second].filter(Boolean).join('; ') || call;
  }

  define(Symbol.for('atoll.import'), (name) => {
    const text = String(name);
    const file = /^\.{0,2}\//.test(text);
    return load(file ? require('url').pathToFileURL(path.resolve(text)).href : text);
  });

  // ---- TypeScript

  const GLOBAL = ['/usr/local/lib/node_modules', '/usr/lib/node_modules', '/usr/share/nodejs', path.resolve(process.execPath, '../../lib/node_modules')];
  const TYPES_OFF = { compilerOptions: { verbatimModuleSyntax: true, target: 'esnext' } };
  const STRIPPERS = {
    esbuild: (tool, code) => tool.transformSync(code, { loader: 'ts', target: 'esnext', tsconfigRaw: TYPES_OFF, logLevel: 'silent' }).code,
    typescript: (tool, code) => {
      const compilerOptions = { target: tool.ScriptTarget.ESNext, module: tool.ModuleKind.ESNext, verbatimModuleSyntax: true };
      const made = tool.transpileModule(code, { compilerOptions, reportDiagnostics: true });
      for (const found of made.diagnostics || []) {
        if (found.category === 1 && found.code < 2000) throw new SyntaxError(tool.flattenDiagnosticMessageText(found.messageText, '\n'));
      }
      return made.outputText;
    },
    sucrase: (tool, code) => tool.transform(code, { transforms: ['typescript'], disableESTransforms: true, keepUnusedImports: true }).code,
    '@swc/core': (tool, code) => tool.transformSync(code, { jsc: { parser: { syntax: 'typescript' }, target: 'esnext' }, isModule: true }).code,
  };
  let strip = null;
  class Missing extends Error {}

  function findStripper() {
    if (typeof nodeModule.stripTypeScriptTypes === 'function') {
      return (code) => {
        try {
          return nodeModule.stripTypeScriptTypes(code, { mode: 'transform' });
        } catch (error) {
          if (error instanceof SyntaxError || error.code === 'ERR_INVALID_TYPESCRIPT_SYNTAX') throw error;
          return nodeModule.stripTypeScriptTypes(code);
        }
      };
    }
    const places = [process.cwd(), ...GLOBAL, ...GLOBAL.map((place) => path.join(place, 'tsx'))];
    for (const [name, use] of Object.entries(STRIPPERS)) {
      try {
        const tool = require(require.resolve(name, { paths: places }));
        if (name === 'typescript' && typeof tool.transpileModule !== 'function') continue;
        return (code) => use(tool, code);
      } catch (error) {
        if (error.code !== 'MODULE_NOT_FOUND') throw error;
      }
    }
    throw new Missing();
  }

  function untyped(code) {
    strip = strip || findStripper();
    try {
      return strip(code);
    } catch (error) {
      const wrong = new SyntaxError(textOf(error));
      wrong.stack = `${wrong.name}: ${wrong.message}`;
      throw wrong;
    }
  }

  // ---- cells

  const session = new Session();
  session.connect();
  let whole;
  session.post('Runtime.evaluate', { expression: 'globalThis' }, (_error, answer) => { whole = answer.result.objectId; });

  let taken;
  let go = null;
  define(Symbol.for('atoll.driver'), { take: (value) => { taken = value; }, go: () => go() });

  const continueAwaited = (() => {
    const v8 = require('v8');
    try {
      v8.setFlagsFromString('--allow-natives-syntax');
      const checkpoint = new vm.Script('(() => { %PerformMicrotaskCheckpoint(); })').runInThisContext();
      checkpoint(); // which compiles it, while that is allowed
      return () => {
        try {
          checkpoint();
        } catch (error) {
          if (!(error instanceof SyntaxError)) throw error; // its code was thrown away, and cannot be compiled again
        }
      };
    } catch {
      return () => {}; // such a loop has to be killed then
    } finally {
      v8.setFlagsFromString('--no-allow-natives-syntax');
    }
  })();
  const breakable = new vm.Script(`globalThis[Symbol.for('atoll.driver')].go()`, { filename: 'atoll:driver' });

  function real(remote) {
    taken = undefined;
    const functionDeclaration = `function (value) { this[Symbol.for('atoll.driver')].take(value); }`;
    const { objectId, value, unserializableValue } = remote;
    const given = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
    session.post('Runtime.callFunctionOn', { objectId: whole, functionDeclaration, arguments: [given] }, () => {});
    return taken;
  }

  function evaluated(source, name) {
    return new Promise((done, failed) => {
      const post = () => session.post(
        'Runtime.evaluate',
        { expression: `${source}\n//# sourceURL=${name}`, replMode: true, awaitPromise: true, objectGroup: 'cell' },
        (error, answer) => {
          if (error && /terminated/.test(error.message)) return; // by an interrupt, which is told below
          if (error) failed(new Error(error.message));
          else if (answer.exceptionDetails) failed(thrown(answer.exceptionDetails, source, name));
          else done([real(answer.result)]); // in a list, or a promise would be awaited here
        });
      go = () => {
        post();
        // What follows an `await` that need not wait for anything can be interrupted only as long as we are in here.
        continueAwaited();
      };
      try {
        breakable.runInThisContext({ breakOnSigint: true, displayErrors: false });
      } catch (error) {
        if (error.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') failed(error);
        else process.emit('SIGINT');
      }
    });
  }

  function thrown(details, source, name) {
    const error = details.exception ? real(details.exception) : new Error(details.text);
    if (error instanceof SyntaxError && !/\n {4}at .*cell-\d+/.test(error.stack || '')) {
      const line = source.split('\n')[details.lineNumber] || '';
      error.stack = `${name}:${details.lineNumber + 1}\n${line.slice(0, 500)}\n${' '.repeat(Math.min(details.columnNumber, 500))}^\n${error.name}: ${error.message}`;
    }
    return error;
  }

  function inSurroundings(request) {
    const before = { cwd: process.cwd(), env: {} };
    for (const [name, value] of Object.entries(request.env || {})) {
      before.env[name] = process.env[name];
      process.env[name] = value;
    }
    if (typeof request.cwd === 'string') process.chdir(request.cwd);
    return () => {
      for (const [name, value] of Object.entries(before.env)) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
      if (typeof request.cwd === 'string') process.chdir(before.cwd);
    };
  }

  async function run(request, number) {
    const interrupted = new Promise((_done, failed) => { fail = failed; });
    interrupted.catch(() => {});
    say(EVENT, { begun: true });
    let leave = () => {};
    try {
      leave = inSurroundings(request);
      const source = asScript(request.typed ? untyped(request.code) : request.code);
      let [value] = await Promise.race([evaluated(source, `cell-${number}`), interrupted]);
      if (util.types.isPromise(value)) value = await Promise.race([value, interrupted]);
      if (value !== undefined) show(value, true, false);
      return { error: null };
    } catch (error) {
      if (error instanceof Missing) return { refused: { code: 'unsupported', message: request.missing } };
      return { error: describe(error) };
    } finally {
      fail = null;
      timers.clear();
      leave();
      session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' }, () => {});
      session.post('Runtime.discardConsoleEntries', {}, () => {});
    }
  }

  const afterwards = setImmediate; // before a cell can have one of its own
  let count = 0;
  let waiting = Buffer.alloc(0);
  const requests = new net.Socket({ fd: REQUESTS, readable: true, writable: false });
  requests.on('data', (piece) => {
    waiting = Buffer.concat([waiting, piece]);
    if (waiting.length < 4 || waiting.length < 4 + waiting.readUInt32LE(0)) return;
    const request = JSON.parse(waiting.subarray(4, 4 + waiting.readUInt32LE(0)).toString('utf8'));
    waiting = Buffer.alloc(0);
    count += 1;
    truncated = false;
    // Afterwards, since node tells of promises that nobody looks after when all else that is due is done.
    run(request, count).then((answer) => afterwards(() => say(END, { ...answer, truncated })));
  });
  requests.on('close', () => process.reallyExit(0));
})
//# sourceURL=atoll:driver
