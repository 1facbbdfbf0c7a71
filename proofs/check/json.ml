(* JSON (RFC 8259), strictly: no duplicate keys, nothing after the value. Numbers keep their text. *)

type t =
  | Null
  | Bool of bool
  | Number of string
  | String of string
  | Array of t list
  | Object of (string * t) list

exception Error of string

let depth_limit = 64

let parse text =
  let n = String.length text in
  let at = ref 0 in
  let fail what = raise (Error (Printf.sprintf "byte %d: expected %s" !at what)) in
  let peek () = if !at < n then text.[!at] else '\000' in
  let rec blank () =
    match peek () with
    | (' ' | '\t' | '\n' | '\r') when !at < n -> incr at; blank ()
    | _ -> () in
  let expect c = if !at < n && text.[!at] = c then incr at else fail (Printf.sprintf "'%c'" c) in
  let word w value =
    let k = String.length w in
    if !at + k <= n && String.sub text !at k = w then (at := !at + k; value) else fail w in
  let utf8 buffer code = Buffer.add_utf_8_uchar buffer (Uchar.of_int code) in
  let hex4 () =
    if !at + 4 > n then fail "four hexadecimal digits";
    let digits = String.sub text !at 4 in
    String.iter (function '0'..'9' | 'a'..'f' | 'A'..'F' -> () | _ -> fail "a hexadecimal digit") digits;
    at := !at + 4;
    int_of_string ("0x" ^ digits) in
  let string () =
    expect '"';
    let b = Buffer.create 32 in
    let rec go () =
      if !at >= n then fail "the end of a string";
      let c = text.[!at] in
      incr at;
      match c with
      | '"' -> Buffer.contents b
      | '\\' ->
        let e = peek () in
        incr at;
        (match e with
         | '"' | '\\' | '/' -> Buffer.add_char b e
         | 'b' -> Buffer.add_char b '\b'
         | 'f' -> Buffer.add_char b '\012'
         | 'n' -> Buffer.add_char b '\n'
         | 'r' -> Buffer.add_char b '\r'
         | 't' -> Buffer.add_char b '\t'
         | 'u' ->
           let code = hex4 () in
           if code >= 0xD800 && code < 0xDC00 then begin
             expect '\\'; expect 'u';
             let low = hex4 () in
             if low < 0xDC00 || low > 0xDFFF then fail "the second half of a surrogate pair";
             utf8 b (0x10000 + ((code - 0xD800) lsl 10) + (low - 0xDC00))
           end else if code >= 0xDC00 && code <= 0xDFFF then fail "a surrogate pair"
           else utf8 b code
         | _ -> fail "an escape");
        go ()
      | c when Char.code c < 0x20 -> fail "no control character"
      | c -> Buffer.add_char b c; go () in
    go () in
  let number () =
    let start = !at in
    let digits () =
      let from = !at in
      while !at < n && (match text.[!at] with '0'..'9' -> true | _ -> false) do incr at done;
      if !at = from then fail "a digit" in
    if peek () = '-' then incr at;
    if peek () = '0' then incr at else digits ();
    if peek () = '.' then (incr at; digits ());
    (match peek () with
     | 'e' | 'E' ->
       incr at;
       (match peek () with '+' | '-' -> incr at | _ -> ());
       digits ()
     | _ -> ());
    Number (String.sub text start (!at - start)) in
  let rec value depth =
    if depth > depth_limit then fail "less nesting";
    blank ();
    match peek () with
    | '{' ->
      incr at; blank ();
      if peek () = '}' then (incr at; Object []) else
        let rec members seen =
          blank ();
          let key = string () in
          if List.mem_assoc key seen then raise (Error (Printf.sprintf "duplicate key \"%s\"" key));
          blank (); expect ':';
          let v = value (depth + 1) in
          blank ();
          let seen = (key, v) :: seen in
          if peek () = ',' then (incr at; members seen) else (expect '}'; Object (List.rev seen)) in
        members []
    | '[' ->
      incr at; blank ();
      if peek () = ']' then (incr at; Array []) else
        let rec elements seen =
          let v = value (depth + 1) in
          blank ();
          if peek () = ',' then (incr at; elements (v :: seen))
          else (expect ']'; Array (List.rev (v :: seen))) in
        elements []
    | '"' -> String (string ())
    | 't' -> word "true" (Bool true)
    | 'f' -> word "false" (Bool false)
    | 'n' -> word "null" Null
    | _ -> number () in
  let v = value 0 in
  blank ();
  if !at <> n then fail "the end";
  v

(* Members, with the path in the message of what is missing. *)
let member path key = function
  | Object members ->
    (match List.assoc_opt key members with
     | Some v -> v
     | None -> raise (Error (Printf.sprintf "%s.%s: found nothing" path key)))
  | _ -> raise (Error (Printf.sprintf "%s: expected an object" path))
let has key = function Object members -> List.mem_assoc key members | _ -> false
let text path key v = match member path key v with
  | String s -> s
  | _ -> raise (Error (Printf.sprintf "%s.%s: expected a string" path key))
let count path key v = match member path key v with
  | Number s when String.length s <= 15 && String.for_all (fun c -> c >= '0' && c <= '9') s -> int_of_string s
  | _ -> raise (Error (Printf.sprintf "%s.%s: expected a count" path key))
