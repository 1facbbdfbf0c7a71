(* Zarith's integers under a name that the extracted module Z does not shadow. *)
include Z
