-- How providers write that there is no value, in lower case and without blanks around it. The cleaned tables have the list as a
-- column, `nothing`, and pass it on as `spellings`.
CREATE MACRO null_spellings() AS array('', 'null', 'none', 'nil', 'nan', 'n/a', 'undefined');

-- The same words without the empty text, which data_quality_issues counts apart.
CREATE MACRO is_null_word(text) AS lower(trim(text)) IN ('null', 'none', 'nil', 'nan', 'n/a', 'undefined');

CREATE MACRO is_null_text(text, spellings) AS array_contains(spellings, lower(trim(text)));

-- A text without blanks around it, or null: as it is written, in lower case, in upper case.
CREATE MACRO clean_text(text, spellings) AS IF(is_null_text(text, spellings), NULL, trim(text));
CREATE MACRO clean_lower(text, spellings) AS IF(is_null_text(text, spellings), NULL, lower(trim(text)));
CREATE MACRO clean_upper(text, spellings) AS IF(is_null_text(text, spellings), NULL, upper(trim(text)));
